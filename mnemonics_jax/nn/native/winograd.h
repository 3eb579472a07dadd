// 3 × 3 kernels at stride 1 by Winograd's F(2 × 2, 3 × 3): a tile of 2 × 2
// outputs sees 4 × 4 inputs, and takes 16 products for each pair of channels
// instead of 36.
//
//   conv  y  = Aᵀ [ (G w Gᵀ) ⊙ (Bᵀ x B) ] A      summed over input channels
//   dw       = Gᵀ [ (A g Aᵀ) ⊙ (Bᵀ x B) ] G      summed over tiles
//
// Each of the 16 entries is a product of matrices. Rounding errors are about
// twice those of the direct sum.

#pragma once

#include "axes.h"

namespace {
namespace winograd {

constexpr int64_t kEntries = 16;
// All entries of a kernel, for conv and dx; and for dw, which adds to them.
constexpr int64_t kReadBytes = 1 << 22, kSumBytes = 1 << 20;
// Floats between matrices: 16 of them a power of two apart would share a cache
// set.
constexpr int64_t kApart = 16;
constexpr int64_t kFewest = 4;          // tiles of an image that are worth it
constexpr int64_t kTiles = 32;          // at a time, about; conv and dx
constexpr int64_t kGradientTiles = 64;  // at a time, about; dw

bool suits(const Axis& h, const Axis& w, int64_t ci, int64_t co,
           int64_t bytes) {
  const auto fits = [](const Axis& a) {
    return a.in_step == 1 && a.out_step == 1 && a.phases[0].taps.size() == 3;
  };
  return fits(h) && fits(w) && ci % V == 0 && co % V == 0 &&
         4 * kEntries * ci * co <= bytes &&
         ceil_div(h.out, 2) * ceil_div(w.out, 2) >= kFewest;
}

// The axis of an input that reaches as far as whole tiles do.
Axis covering(Axis axis) {
  const int64_t reach = axis.phases[0].offset + 2 * ceil_div(axis.out, 2) + 2;
  axis.padded = std::max(axis.padded, reach);
  return axis;
}

// The three transformations of vectors a, `step` apart, in one direction.
struct Input {  // Bᵀ
  static constexpr int from = 4, to = 4;
  static void apply(const Vec* a, int step, Vec* b) {
    b[0] = a[0] - a[2 * step];
    b[1] = a[step] + a[2 * step];
    b[2] = a[2 * step] - a[step];
    b[3] = a[step] - a[3 * step];
  }
};
struct Output {  // Aᵀ
  static constexpr int from = 4, to = 2;
  static void apply(const Vec* a, int step, Vec* b) {
    b[0] = a[0] + a[step] + a[2 * step];
    b[1] = a[step] - a[2 * step] - a[3 * step];
  }
};
struct Gradient {  // A
  static constexpr int from = 2, to = 4;
  static void apply(const Vec* a, int step, Vec* b) {
    b[0] = a[0];
    b[1] = a[0] + a[step];
    b[2] = a[0] - a[step];
    b[3] = -a[step];
  }
};
struct Kernel {  // G
  static constexpr int from = 3, to = 4;
  static void apply(const Vec* a, int step, Vec* b) {
    const Vec even = (a[0] + a[2 * step]) * 0.5f, odd = a[step] * 0.5f;
    b[0] = a[0];
    b[1] = even + odd;
    b[2] = even - odd;
    b[3] = a[2 * step];
  }
};
struct KernelGradient {  // Gᵀ
  static constexpr int from = 4, to = 3;
  static void apply(const Vec* a, int step, Vec* b) {
    const Vec sum = (a[step] + a[2 * step]) * 0.5f;
    b[0] = a[0] + sum;
    b[1] = (a[step] - a[2 * step]) * 0.5f;
    b[2] = sum + a[3 * step];
  }
};

// T in both directions: from² vectors to to² of them, row by row.
template <class T>
inline __attribute__((always_inline)) void transform(const Vec* from, Vec* to) {
  Vec half[T::from * T::to];
  EACH (i, T::from) T::apply(from + i * T::from, 1, half + i * T::to);
  EACH (j, T::to) {
    Vec column[T::to];
    T::apply(half + j, T::to, column);
    EACH (i, T::to) to[i * T::to + j] = column[i];
  }
}

// Tile rows [first, last) of a padded image as rows of kEntries matrices, each
// `entry` floats from the next.
void enter(const float* x, const Axis& h, const Axis& w, int64_t c,
           int64_t first, int64_t last, float* to, int64_t entry) {
  const int64_t across = ceil_div(w.out, 2);
  const int64_t row = w.padded * c;
  x += h.phases[0].offset * row + w.phases[0].offset * c;
  for (int64_t i = first; i < last; ++i)
    for (int64_t j = 0; j < across; ++j)
      for (int64_t e = 0; e < c; e += V, to += V) {
        const float* corner = x + 2 * i * row + 2 * j * c + e;
        Vec seen[16], entries[16];
        EACH (r, 4)
          EACH (q, 4) seen[4 * r + q] = load(corner + r * row + q * c);
        transform<Input>(seen, entries);
        EACH (k, 16) store(to + k * entry, entries[k]);
      }
}

// The same of an image of output gradients, which has no border.
void enter_gradient(const float* g, const Axis& h, const Axis& w, int64_t c,
                    int64_t first, int64_t last, float* to, int64_t entry) {
  const int64_t across = ceil_div(w.out, 2);
  for (int64_t i = first; i < last; ++i)
    for (int64_t j = 0; j < across; ++j)
      for (int64_t e = 0; e < c; e += V, to += V) {
        Vec seen[4], entries[16];
        EACH (r, 2)
          EACH (q, 2) {
            const bool there = 2 * i + r < h.out && 2 * j + q < w.out;
            seen[2 * r + q] =
                there ? load(g + ((2 * i + r) * w.out + 2 * j + q) * c + e)
                      : Vec{};
          }
        transform<Gradient>(seen, entries);
        EACH (k, 16) store(to + k * entry, entries[k]);
      }
}

// Outputs from rows of kEntries matrices.
void leave(const float* from, const Axis& h, const Axis& w, int64_t c,
           int64_t first, int64_t last, float* y, int64_t entry) {
  const int64_t across = ceil_div(w.out, 2);
  for (int64_t i = first; i < last; ++i)
    for (int64_t j = 0; j < across; ++j)
      for (int64_t o = 0; o < c; o += V, from += V) {
        Vec entries[16], outputs[4];
        EACH (k, 16) entries[k] = load(from + k * entry);
        transform<Output>(entries, outputs);
        EACH (r, 2)
          EACH (q, 2)
            if (2 * i + r < h.out && 2 * j + q < w.out)
              store(y + ((2 * i + r) * w.out + 2 * j + q) * c + o,
                    outputs[2 * r + q]);
      }
}

// One entry's matrix for some output channels: rows of input channels.
struct Product {
  int64_t entry, first, wide;
  std::vector<Taps> taps;
};

std::vector<Product> pack(const Axis& h, const Axis& w, int64_t ci, int64_t co,
                          const float* kernel, bool transposed) {
  float* const packed = scratch(kWeights, kEntries * ci * co);
  for (int64_t e = 0; e < ci; ++e)
    for (int64_t o = 0; o < co; o += V) {
      Vec taps[9], entries[16];
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
      transform<Kernel>(taps, entries);
      const int64_t block = o / (kWide * V) * kWide * V;
      const int64_t width = std::min<int64_t>(kWide * V, co - block);
      float* const to = packed + block * ci + e * width + o - block;
      for (int k = 0; k < 16; ++k) store(to + k * ci * co, entries[k]);
    }
  std::vector<Product> products;
  for (int64_t k = 0; k < kEntries; ++k)
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

template <class Pool>
void correlate(Pool& pool, bool transposed, int64_t n, const Axis& inner_h,
               const Axis& inner_w, int64_t ci, int64_t co, int64_t,
               const float* in, const float* kernel, float* out) {
  const Axis h = covering(inner_h), w = covering(inner_w);
  const auto products = pack(h, w, ci, co, kernel, transposed);
  const int64_t down = ceil_div(h.out, 2), across = ceil_div(w.out, 2);
  const Chunks chunks(down, across, kTiles);
  parallel(pool, ceil_div(n, chunks.images), [&](int64_t task) {
    const int64_t begin = task * chunks.images,
                  count = std::min(chunks.images, n - begin);
    const float* x = nullptr;
    cut(down, chunks.rows, [&](int64_t first, int64_t rows) {
      const int64_t each = rows * across, tiles = count * each;
      const int64_t in_entry = tiles * ci + kApart,
                    out_entry = tiles * co + kApart;
      float* const inputs = scratch(kInputs, kEntries * in_entry);
      float* const sums = scratch(kOutputs, kEntries * out_entry);
      for (int64_t i = 0; i < count; ++i) {
        if (first == 0)
          x = padded(in + (begin + i) * h.in * w.in * ci, h, w, ci);
        enter(x, h, w, ci, first, first + rows, inputs + i * each * ci,
              in_entry);
      }
      for (const Product& p : products)
        cut(tiles, tall(p.wide), [&](int64_t t, int64_t size) {
          const SumTaps sum =
              p.wide == 1 ? sum_taps_of<1>(size) : sum_taps_of<2>(size);
          sum(inputs + p.entry * in_entry + t * ci, ci, p.taps,
              sums + p.entry * out_entry + t * co + p.first, co, p.wide * V);
        });
      for (int64_t i = 0; i < count; ++i)
        leave(sums + i * each * co, h, w, co, first, first + rows,
              out + (begin + i) * h.out * w.out * co, out_entry);
    });
  });
}

constexpr int64_t kParts = 8;  // of a batch, added in order

template <class Pool>
void kernel_gradient(Pool& pool, int64_t n, const Axis& inner_h,
                     const Axis& inner_w, int64_t ci, int64_t co, int64_t,
                     const float* x, const float* g, float* dw) {
  const Axis h = covering(inner_h), w = covering(inner_w);
  const int64_t down = ceil_div(h.out, 2), across = ceil_div(w.out, 2);
  const Chunks chunks(down, across, kGradientTiles);
  const int64_t parts = std::min(n, kParts), size = kEntries * ci * co;
  float* const totals = scratch(kTotals, parts * size);
  std::fill(totals, totals + parts * size, 0.f);
  parallel(pool, parts, [&](int64_t part) {
    float* const total = totals + part * size;
    const int64_t end = n * (part + 1) / parts;
    for (int64_t begin = n * part / parts; begin < end;
         begin += chunks.images) {
      const int64_t count = std::min(chunks.images, end - begin);
      const float* xi = nullptr;
      cut(down, chunks.rows, [&](int64_t first, int64_t rows) {
        const int64_t each = rows * across, tiles = count * each,
                      last = first + rows;
        const int64_t x_entry = tiles * ci + kApart,
                      g_entry = tiles * co + kApart;
        float* const inputs = scratch(kInputs, kEntries * x_entry);
        float* const gradients = scratch(kOutputs, kEntries * g_entry);
        for (int64_t i = 0; i < count; ++i) {
          const int64_t image = begin + i;
          if (first == 0) xi = padded(x + image * h.in * w.in * ci, h, w, ci);
          enter(xi, h, w, ci, first, last, inputs + i * each * ci, x_entry);
          enter_gradient(g + image * h.out * w.out * co, h, w, co, first, last,
                         gradients + i * each * co, g_entry);
        }
        for (int64_t k = 0; k < kEntries; ++k)
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
      });
    }
  });
  for (int64_t at = 0; at < ci * co; at += V) {
    Vec entries[16], taps[9];
    for (int64_t k = 0; k < kEntries; ++k) {
      entries[k] = load(totals + k * ci * co + at);
      for (int64_t p = 1; p < parts; ++p)
        entries[k] += load(totals + p * size + k * ci * co + at);
    }
    transform<KernelGradient>(entries, taps);
    for (int t = 0; t < 9; ++t) store(dw + t * ci * co + at, taps[t]);
  }
}

}  // namespace winograd
}  // namespace
