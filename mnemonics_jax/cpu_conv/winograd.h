// 3 × 3 kernels at stride 1 by Winograd's F(M × M, 3 × 3): a tile of M × M
// outputs sees (M + 2)² inputs, and takes as many products for each pair of
// channels instead of 9 M²: for M = 4 a quarter of them, for M = 2 four ninths.
//
//   conv  y  = Aᵀ [ (G w Gᵀ) ⊙ (Bᵀ x B) ] A      summed over input channels
//   dw       = Gᵀ [ (A g Aᵀ) ⊙ (Bᵀ x B) ] G      summed over tiles
//
// Each entry is a product of matrices; schemes.h has the maps before and after.
// Rounding errors are about twice those of the direct sum.

#pragma once

#include "axes.h"
#include "schemes.h"

namespace {
namespace winograd {

// All entries of a kernel, for conv and dx; and for dw, which adds to them.
constexpr int64_t kReadBytes = 1 << 22, kSumBytes = 1 << 20;
// Floats between matrices: many of them a power of two apart would share a
// cache set.
constexpr int64_t kApart = 16;

template <class F>
constexpr int kEntries = F::in * F::in;

// How many tiles are along an axis.
template <class F>
int64_t tiles(const Axis& axis) {
  return ceil_div(axis.out, F::out);
}

template <class F>
bool suits(const Axis& h, const Axis& w, int64_t ci, int64_t co,
           int64_t bytes) {
  const auto fits = [](const Axis& a) {
    return a.in_step == 1 && a.out_step == 1 && a.phases[0].taps.size() == 3;
  };
  return fits(h) && fits(w) && ci % V == 0 && co % V == 0 &&
         4 * kEntries<F> * ci * co <= bytes &&
         kEntries<F> * tiles<F>(h) * tiles<F>(w) < 9 * h.out * w.out;
}

// Tile rows [first, last) of an image as rows of matrices, each `entry` floats
// from the next. Beyond the image are zeros.
template <class F>
void enter(const float* x, const Axis& h, const Axis& w, int64_t c,
           int64_t first, int64_t last, float* to, int64_t entry) {
  const int64_t row = w.in * c, across = tiles<F>(w);
  for (int64_t i = first; i < last; ++i)
    for (int64_t j = 0; j < across; ++j) {
      const int64_t top = F::out * i + h.phases[0].offset - h.pad,
                    left = F::out * j + w.phases[0].offset - w.pad;
      const bool inside =
          top >= 0 && top + F::in <= h.in && left >= 0 && left + F::in <= w.in;
      const float* corner = x + top * row + left * c;
      for (int64_t e = 0; e < c; e += V, to += V, corner += V) {
        Vec seen[kEntries<F>], entries[kEntries<F>];
        if (inside)
          EACH (r, F::in)
            EACH (q, F::in)
              seen[F::in * r + q] = load(corner + r * row + q * c);
        else
          EACH (r, F::in)
            EACH (q, F::in) {
              const bool there = top + r >= 0 && top + r < h.in &&
                                 left + q >= 0 && left + q < w.in;
              seen[F::in * r + q] =
                  there ? load(corner + r * row + q * c) : Vec{};
            }
        transform<typename F::Input>(seen, entries);
        EACH (k, kEntries<F>) store(to + k * entry, entries[k]);
      }
    }
}

// The same of an image of output gradients, which has no border.
template <class F>
void enter_gradient(const float* g, const Axis& h, const Axis& w, int64_t c,
                    int64_t first, int64_t last, float* to, int64_t entry) {
  const int64_t across = tiles<F>(w);
  for (int64_t i = first; i < last; ++i)
    for (int64_t j = 0; j < across; ++j)
      for (int64_t e = 0; e < c; e += V, to += V) {
        Vec seen[F::out * F::out], entries[kEntries<F>];
        EACH (r, F::out)
          EACH (q, F::out) {
            const bool there = F::out * i + r < h.out && F::out * j + q < w.out;
            seen[F::out * r + q] =
                there
                    ? load(g + ((F::out * i + r) * w.out + F::out * j + q) * c +
                           e)
                    : Vec{};
          }
        transform<typename F::Gradient>(seen, entries);
        EACH (k, kEntries<F>) store(to + k * entry, entries[k]);
      }
}

// Outputs from rows of matrices.
template <class F>
void leave(const float* from, const Axis& h, const Axis& w, int64_t c,
           int64_t first, int64_t last, float* y, int64_t entry) {
  const int64_t across = tiles<F>(w);
  for (int64_t i = first; i < last; ++i)
    for (int64_t j = 0; j < across; ++j)
      for (int64_t o = 0; o < c; o += V, from += V) {
        Vec entries[kEntries<F>], outputs[F::out * F::out];
        EACH (k, kEntries<F>) entries[k] = load(from + k * entry);
        transform<typename F::Output>(entries, outputs);
        EACH (r, F::out)
          EACH (q, F::out)
            if (F::out * i + r < h.out && F::out * j + q < w.out)
              store(y + ((F::out * i + r) * w.out + F::out * j + q) * c + o,
                    outputs[F::out * r + q]);
      }
}

// One entry's matrix for some output channels: rows of input channels.
struct Product {
  int64_t entry, first, wide;
  std::vector<Taps> taps;
};

template <class F, class Pool>
std::vector<Product> pack(Pool& pool, const Axis& h, const Axis& w, int64_t ci,
                          int64_t co, const float* kernel, bool transposed) {
  float* const packed = scratch(kWeights, kEntries<F> * ci * co);
  parallel(pool, ci, [&](int64_t e) {
    for (int64_t o = 0; o < co; o += V) {
      Vec taps[9], entries[kEntries<F>];
      for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 3; ++j) {
          const int64_t at = h.phases[0].taps[i] * 3 + w.phases[0].taps[j];
          const float* tap = kernel + at * ci * co;
          if (!transposed)
            taps[3 * i + j] = load(tap + e * co + o);
          else
            for (int q = 0; q < V; ++q)
              taps[3 * i + j][q] = tap[(o + q) * ci + e];
        }
      transform<typename F::Kernel>(taps, entries);
      const int64_t block = o / (kWide * V) * kWide * V;
      const int64_t width = std::min<int64_t>(kWide * V, co - block);
      float* const to = packed + block * ci + e * width + o - block;
      for (int k = 0; k < kEntries<F>; ++k) store(to + k * ci * co, entries[k]);
    }
  });
  std::vector<Product> products;
  for (int64_t k = 0; k < kEntries<F>; ++k)
    for (int64_t o = 0; o < co; o += kWide * V) {
      const int64_t wide = std::min<int64_t>(kWide, (co - o) / V);
      products.push_back(
          {k, o, wide, {{0, ci, packed + k * ci * co + o * ci}}});
    }
  return products;
}

// What is transformed at a time, so that it stays in the cache: rows of tiles
// of one image, or some images if they are small.
struct Chunks {
  int64_t images, rows;
  Chunks(int64_t down, int64_t across, int64_t tiles)
      : images(std::max<int64_t>(1, tiles / (down * across))),
        rows(images > 1 ? down : std::clamp<int64_t>(tiles / across, 1, down)) {
  }
};

// Rows of images, all of them one below the other.
struct Lines {
  int64_t first, count;
  Lines after() const { return {first + count, count}; }
};

// Those under tile rows [first, first + rows) of images [begin, begin + count).
template <class F>
Lines under(int64_t height, int64_t begin, int64_t count, int64_t first,
            int64_t rows) {
  return {begin * height + first * F::out,
          count * std::min(rows * F::out, height)};
}

// Asks for lines before they are needed, a share at a time, while entries are
// multiplied: tiles are read and written in an order that processors do not
// foresee, so that they would wait for memory.
template <bool written>
class Ahead {
  static constexpr int64_t kFloats = 16;  // that come together
  const float* at_;
  const int64_t share_;

 public:
  Ahead(const float* images, Lines lines, int64_t width, int64_t shares)
      : at_(images + lines.first * width),
        share_(ceil_div(lines.count * width, kFloats * shares)) {}
  void share() {
    for (int64_t i = 0; i < share_; ++i, at_ += kFloats)
      __builtin_prefetch(at_, written, 2);
  }
};

template <class F, class Pool>
void correlate(Pool& pool, bool transposed, int64_t n, const Axis& h,
               const Axis& w, int64_t ci, int64_t co, int64_t, const float* in,
               const float* kernel, float* out) {
  const auto products = pack<F>(pool, h, w, ci, co, kernel, transposed);
  const int64_t down = tiles<F>(h), across = tiles<F>(w);
  const Chunks chunks(down, across, F::tiles);
  parallel(pool, ceil_div(n, chunks.images), [&](int64_t task) {
    const int64_t begin = task * chunks.images,
                  count = std::min(chunks.images, n - begin);
    cut(down, chunks.rows, [&](int64_t first, int64_t rows) {
      const int64_t each = rows * across, tiles = count * each;
      const int64_t in_entry = tiles * ci + kApart,
                    out_entry = tiles * co + kApart;
      float* const inputs = scratch(kInputs, kEntries<F> * in_entry);
      float* const sums = scratch(kOutputs, kEntries<F> * out_entry);
      for (int64_t i = 0; i < count; ++i)
        enter<F>(in + (begin + i) * h.in * w.in * ci, h, w, ci, first,
                 first + rows, inputs + i * each * ci, in_entry);
      Ahead<false> next(in, under<F>(h.in, begin, count, first, rows).after(),
                        w.in * ci, products.size());
      Ahead<true> outputs(out, under<F>(h.out, begin, count, first, rows),
                          w.out * co, products.size());
      for (const Product& p : products) {
        next.share();
        outputs.share();
        cut(tiles, tall(p.wide), [&](int64_t t, int64_t size) {
          const SumTaps sum =
              p.wide == 1 ? sum_taps_of<1>(size) : sum_taps_of<2>(size);
          sum(inputs + p.entry * in_entry + t * ci, ci, p.taps,
              sums + p.entry * out_entry + t * co + p.first, co, p.wide * V);
        });
      }
      for (int64_t i = 0; i < count; ++i)
        leave<F>(sums + i * each * co, h, w, co, first, first + rows,
                 out + (begin + i) * h.out * w.out * co, out_entry);
    });
  });
}

constexpr int64_t kParts = 8;  // of a batch, added in order

template <class F, class Pool>
void kernel_gradient(Pool& pool, int64_t n, const Axis& h, const Axis& w,
                     int64_t ci, int64_t co, int64_t, const float* x,
                     const float* g, float* dw) {
  const int64_t down = tiles<F>(h), across = tiles<F>(w);
  const Chunks chunks(down, across, F::gradient_tiles);
  const int64_t parts = std::min(n, kParts), size = kEntries<F> * ci * co;
  float* const totals = scratch(kTotals, parts * size);
  parallel(pool, parts, [&](int64_t part) {
    float* const total = totals + part * size;
    std::fill(total, total + size, 0.f);
    const int64_t end = n * (part + 1) / parts;
    for (int64_t begin = n * part / parts; begin < end;
         begin += chunks.images) {
      const int64_t count = std::min(chunks.images, end - begin);
      cut(down, chunks.rows, [&](int64_t first, int64_t rows) {
        const int64_t each = rows * across, tiles = count * each,
                      last = first + rows;
        const int64_t x_entry = tiles * ci + kApart,
                      g_entry = tiles * co + kApart;
        float* const inputs = scratch(kInputs, kEntries<F> * x_entry);
        float* const gradients = scratch(kOutputs, kEntries<F> * g_entry);
        for (int64_t i = 0; i < count; ++i) {
          const int64_t image = begin + i;
          enter<F>(x + image * h.in * w.in * ci, h, w, ci, first, last,
                   inputs + i * each * ci, x_entry);
          enter_gradient<F>(g + image * h.out * w.out * co, h, w, co, first,
                            last, gradients + i * each * co, g_entry);
        }
        Ahead<false> next_x(x,
                            under<F>(h.in, begin, count, first, rows).after(),
                            w.in * ci, kEntries<F>);
        Ahead<false> next_g(g,
                            under<F>(h.out, begin, count, first, rows).after(),
                            w.out * co, kEntries<F>);
        for (int64_t k = 0; k < kEntries<F>; ++k) {
          next_x.share();
          next_g.share();
          for (int64_t o = 0; o < co; o += kWide * V) {
            const bool narrow = co - o <= V;
            cut(ci, kSums / (narrow ? 1 : kWide), [&](int64_t e, int64_t m) {
              const SumPixels sum =
                  narrow ? sum_pixels_of<1>(m) : sum_pixels_of<2>(m);
              sum({inputs + k * x_entry + e, gradients + k * g_entry + o, 0, ci,
                   0, co, 1, tiles},
                  total + (k * ci + e) * co + o, co);
            });
          }
        }
      });
    }
  });
  parallel(pool, ci, [&](int64_t e) {
    for (int64_t at = e * co; at < (e + 1) * co; at += V) {
      Vec entries[kEntries<F>], taps[9];
      for (int64_t k = 0; k < kEntries<F>; ++k) {
        entries[k] = load(totals + k * ci * co + at);
        for (int64_t p = 1; p < parts; ++p)
          entries[k] += load(totals + p * size + k * ci * co + at);
      }
      transform<typename F::KernelGradient>(entries, taps);
      for (int t = 0; t < 9; ++t) store(dw + t * ci * co + at, taps[t]);
    }
  });
}

}  // namespace winograd
}  // namespace
