// The three maps of a convolution on a CPU, as calls that XLA makes.
//
// Images are NHWC, kernels HWIO, all of it float32. In this layout the inputs
// that one row of a kernel sees are contiguous, so that every map is made of
// products of short pieces of image rows with matrices:
//
//   conv2d, conv2d_dx  a tile of neighbouring outputs stays in registers while
//                      all taps are added to it (dx is a conv of the gradient,
//                      split into stride × stride parts of its outputs);
//   conv2d_dw          a tile of the kernel stays in registers while the pixels
//                      of some rows are added to it.
//
// Vectors are those of GCC and Clang: the same source makes AVX-512, AVX2, SSE
// and NEON. Every sum has one order, whatever the number of threads.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using F32 = ffi::Buffer<ffi::F32>;
using Out = ffi::Result<F32>;
using std::int64_t;

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#endif

namespace {

// V floats make a vector; kSums vectors of sums fit the registers beside operands.
#if defined(__AVX512F__)
constexpr int V = 16, kSums = 24;
#elif defined(__AVX__)
constexpr int V = 8, kSums = 12;
#elif defined(__aarch64__)
constexpr int V = 4, kSums = 24;
#else
constexpr int V = 4, kSums = 12;
#endif
typedef float Vec __attribute__((vector_size(4 * V), aligned(4), may_alias));

inline Vec load(const float* p) { return *reinterpret_cast<const Vec*>(p); }
inline void store(float* p, Vec v) { *reinterpret_cast<Vec*>(p) = v; }

constexpr int kWide = 2;  // vectors of channels in a tile, at most
constexpr int tall(int wide) { return wide == 1 ? std::min(kSums, 16) : kSums / wide; }

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Memory that a thread keeps between calls: fresh pages are expensive.
enum Purpose { kPadded, kWidened, kWeights, kTotals, kPurposes };
float* scratch(Purpose purpose, int64_t size) {
  thread_local std::vector<float> kept[kPurposes];
  auto& buffer = kept[purpose];
  if (static_cast<int64_t>(buffer.size()) < size) buffer.resize(size);
  return buffer.data();
}

// Does tasks 0 to count - 1 on the threads of the pool. The caller works, too:
// a pool that is busy with other things cannot block it.
template <class Pool>
void parallel(Pool& pool, int64_t count, const std::function<void(int64_t)>& task) {
  struct Progress {
    std::atomic<int64_t> next{0};
    int64_t done = 0;
    std::mutex mutex;
    std::condition_variable all;
  };
  auto progress = std::make_shared<Progress>();
  // A thread that comes too late finds no task and does not touch `task`.
  auto work = [progress, count, &task] {
    int64_t mine = 0;
    for (int64_t i; (i = progress->next++) < count; ++mine) task(i);
    if (mine == 0) return;
    std::lock_guard<std::mutex> lock(progress->mutex);
    if ((progress->done += mine) == count) progress->all.notify_all();
  };
  const int64_t helpers = std::min<int64_t>(pool.num_threads(), count) - 1;
  for (int64_t i = 0; i < helpers; ++i)
    pool.Schedule(std::function<void()>(work));
  work();
  std::unique_lock<std::mutex> lock(progress->mutex);
  progress->all.wait(lock, [&] { return progress->done == count; });
}

// Cuts `length` into as few pieces of at most `limit` as possible, all about
// equally long, and calls body(start, size) for each.
template <class Body>
void cut(int64_t length, int64_t limit, const Body& body) {
  const int64_t pieces = ceil_div(length, limit);
  for (int64_t i = 0, start = 0; i < pieces; ++i) {
    const int64_t stop = length * (i + 1) / pieces;
    body(start, stop - start);
    start = stop;
  }
}

// Along one axis and for one remainder of the output's index by out_step, output
// first + out_step * i is the sum of inputs in_step * i + offset + t, of the
// padded input, times entry taps[t] of the kernel.
struct Phase {
  int64_t first, count, offset;
  std::vector<int64_t> taps;
};

struct Axis {
  int64_t in, out, pad, padded, in_step, out_step;
  std::vector<Phase> phases;
};

void measure(Axis& axis) {
  axis.padded = axis.in + axis.pad;
  for (const Phase& phase : axis.phases)
    axis.padded = std::max<int64_t>(axis.padded, (phase.count - 1) * axis.in_step +
                                                     phase.offset + phase.taps.size());
}

Axis forward_axis(int64_t image, int64_t out, int64_t k, int64_t s, int64_t p) {
  Axis axis{image, out, p, 0, s, 1, {{0, out, 0, {}}}};
  for (int64_t t = 0; t < k; ++t) axis.phases[0].taps.push_back(t);
  measure(axis);
  return axis;
}

// Image entry i has got tap t from output (i + p - t) / s, if that is whole.
Axis backward_axis(int64_t image, int64_t out, int64_t k, int64_t s, int64_t p) {
  const int64_t pad = std::max<int64_t>(0, ceil_div(k - 1 - p, s));
  Axis axis{out, image, pad, 0, 1, s, {}};
  for (int64_t first = 0; first < std::min(s, image); ++first) {
    Phase phase{first, ceil_div(image - first, s), 0, {}};
    for (int64_t t = k - 1; t >= 0; --t)
      if ((first + p - t) % s == 0) {
        if (phase.taps.empty()) phase.offset = (first + p - t) / s + pad;
        phase.taps.push_back(t);
      }
    axis.phases.push_back(phase);
  }
  measure(axis);
  return axis;
}

// An image with its border of zeros, or the image itself if it needs none.
const float* padded(const float* image, const Axis& h, const Axis& w, int64_t c) {
  if (h.padded == h.in && w.padded == w.in) return image;
  const int64_t row = w.padded * c, inside = w.in * c, left = w.pad * c;
  float* const to = scratch(kPadded, h.padded * row);
  std::fill(to, to + h.pad * row, 0.f);
  for (int64_t r = 0; r < h.in; ++r) {
    float* const line = to + (h.pad + r) * row;
    std::fill(line, line + left, 0.f);
    std::memcpy(line + left, image + r * inside, 4 * inside);
    std::fill(line + left + inside, line + row, 0.f);
  }
  std::fill(to + (h.pad + h.in) * row, to + h.padded * row, 0.f);
  return to;
}

// One row of a kernel: `length` contiguous floats of an image, `offset` from where
// an output begins to see it, times as many rows of `weights`.
struct Taps {
  int64_t offset, length;
  const float* weights;
};

// T neighbouring outputs of B vectors of channels; `channels` of them are real.
template <int T, int B>
void sum_taps(const float* in, int64_t step, const std::vector<Taps>& taps, float* out,
              int64_t out_step, int64_t channels) {
  Vec sum[T][B];
  UNROLL for (int i = 0; i < T; ++i) UNROLL for (int b = 0; b < B; ++b) sum[i][b] = Vec{};
  for (const Taps& row : taps) {
    const float *x = in + row.offset, *w = row.weights;
    int64_t j = row.length;
    for (; j >= 4; j -= 4, x += 4, w += 4 * B * V) {
      const float* pixel = x;
      UNROLL for (int i = 0; i < T; ++i, pixel += step)
        UNROLL for (int u = 0; u < 4; ++u)
          UNROLL for (int b = 0; b < B; ++b)
            sum[i][b] += load(w + (u * B + b) * V) * pixel[u];
    }
    for (; j > 0; --j, ++x, w += B * V)
      UNROLL for (int i = 0; i < T; ++i)
        UNROLL for (int b = 0; b < B; ++b) sum[i][b] += load(w + b * V) * x[i * step];
  }
  float spare[T * B * V];
  const bool whole = channels >= B * V;
  float* const to = whole ? out : spare;
  const int64_t to_step = whole ? out_step : B * V;
  UNROLL for (int i = 0; i < T; ++i)
    UNROLL for (int b = 0; b < B; ++b) store(to + i * to_step + b * V, sum[i][b]);
  if (whole) return;
  for (int i = 0; i < T; ++i)
    std::memcpy(out + i * out_step, spare + i * B * V, 4 * channels);
}

using SumTaps = void (*)(const float*, int64_t, const std::vector<Taps>&, float*, int64_t,
                         int64_t);
template <int B, int... I>
SumTaps sum_taps_of(int64_t size, std::integer_sequence<int, I...>) {
  static constexpr SumTaps table[] = {sum_taps<I + 1, B>...};
  return table[size - 1];
}
template <int B>
SumTaps sum_taps_of(int64_t size) {
  return sum_taps_of<B>(size, std::make_integer_sequence<int, tall(B)>());
}

// Output channels that are summed together, in one phase of each axis.
struct Block {
  const Phase *rows, *columns;
  int64_t first, channels, wide;
  std::vector<Taps> taps;
};

// Copies the kernel in the order in which it is used. `transposed` is for dx, whose
// outputs are the kernel's inputs.
std::vector<Block> pack(const Axis& h, const Axis& w, int64_t ci, int64_t co, int64_t k,
                        const float* kernel, bool transposed) {
  const int64_t wide_co = ceil_div(co, V) * V;
  float* to = scratch(kWeights, k * k * ci * wide_co);
  std::vector<Block> blocks;
  for (const Phase& r : h.phases)
    for (const Phase& c : w.phases)
      for (int64_t o = 0; o < co; o += kWide * V) {
        const int64_t channels = std::min<int64_t>(co - o, kWide * V);
        const int64_t wide = ceil_div(channels, V), width = wide * V;
        Block block{&r, &c, o, channels, wide, {}};
        for (size_t i = 0; i < r.taps.size(); ++i) {
          const int64_t offset = ((r.offset + i) * w.padded + c.offset) * ci;
          block.taps.push_back({offset, int64_t(c.taps.size()) * ci, to});
          for (int64_t j : c.taps) {
            const float* tap = kernel + (r.taps[i] * k + j) * ci * co;
            for (int64_t e = 0; e < ci; ++e, to += width) {
              for (int64_t q = 0; q < channels; ++q)
                to[q] = transposed ? tap[(o + q) * ci + e] : tap[e * co + o + q];
              std::fill(to + channels, to + width, 0.f);
            }
          }
        }
        blocks.push_back(std::move(block));
      }
  return blocks;
}

template <class Pool>
void correlate(Pool& pool, bool transposed, int64_t n, const Axis& h,
               const Axis& w, int64_t ci, int64_t co, int64_t k, const float* in,
               const float* kernel, float* out) {
  const auto blocks = pack(h, w, ci, co, k, kernel, transposed);
  parallel(pool, n, [&](int64_t image) {
    const float* x = padded(in + image * h.in * w.in * ci, h, w, ci);
    float* y = out + image * h.out * w.out * co;
    for (const Block& block : blocks)
      for (int64_t r = 0; r < block.rows->count; ++r) {
        const float* from = x + r * h.in_step * w.padded * ci;
        float* to = y + ((block.rows->first + r * h.out_step) * w.out + block.columns->first) * co +
                    block.first;
        cut(block.columns->count, tall(block.wide), [&](int64_t c, int64_t size) {
          const SumTaps sum = block.wide == 1 ? sum_taps_of<1>(size) : sum_taps_of<2>(size);
          sum(from + c * w.in_step * ci, w.in_step * ci, block.taps,
              to + c * w.out_step * co, w.out_step * co, block.channels);
        });
      }
  });
}

// Adds x[m] * g[:] of the pixels of some rows to M rows and B vectors of a kernel.
struct Rows {
  const float *x, *g;
  int64_t x_row, x_step, g_row, g_step, rows, columns;
};

template <int M, int B>
void sum_pixels(const Rows& rows, float* total, int64_t stride) {
  Vec sum[M][B];
  UNROLL for (int m = 0; m < M; ++m) UNROLL for (int b = 0; b < B; ++b) sum[m][b] = Vec{};
  for (int64_t r = 0; r < rows.rows; ++r) {
    const float *x = rows.x + r * rows.x_row, *g = rows.g + r * rows.g_row;
    for (int64_t c = 0; c < rows.columns; ++c, x += rows.x_step, g += rows.g_step) {
      Vec vectors[B];
      UNROLL for (int b = 0; b < B; ++b) vectors[b] = load(g + b * V);
      UNROLL for (int m = 0; m < M; ++m)
        UNROLL for (int b = 0; b < B; ++b) sum[m][b] += vectors[b] * x[m];
    }
  }
  UNROLL for (int m = 0; m < M; ++m)
    UNROLL for (int b = 0; b < B; ++b) {
      float* const p = total + m * stride + b * V;
      store(p, load(p) + sum[m][b]);
    }
}

using SumPixels = void (*)(const Rows&, float*, int64_t);
template <int B, int... I>
SumPixels sum_pixels_of(int64_t size, std::integer_sequence<int, I...>) {
  static constexpr SumPixels table[] = {sum_pixels<I + 1, B>...};
  return table[size - 1];
}
template <int B>
SumPixels sum_pixels_of(int64_t size) {
  return sum_pixels_of<B>(size, std::make_integer_sequence<int, kSums / B>());
}

// Gradients with channels up to a multiple of V, zeros beyond.
const float* widened(const float* g, int64_t pixels, int64_t co, int64_t wide) {
  if (wide == co) return g;
  float* const to = scratch(kWidened, pixels * wide);
  for (int64_t i = 0; i < pixels; ++i) {
    std::memcpy(to + i * wide, g + i * co, 4 * co);
    std::fill(to + i * wide + co, to + (i + 1) * wide, 0.f);
  }
  return to;
}

constexpr int64_t kTasks = 8;             // at least, if there are as many images
constexpr int64_t kGroupBytes = 1 << 18;  // of a kernel that a task sums: part of L2
constexpr int64_t kRowBytes = 1 << 14;    // of the gradient's rows in use: part of L1

// A task sums some images into some output channels; tasks that have the channels in
// common are added in order.
template <class Pool>
void kernel_gradient(Pool& pool, int64_t n, const Axis& h, const Axis& w,
                     int64_t ci, int64_t co, int64_t k, const float* x, const float* g,
                     float* dw) {
  const int64_t wide = ceil_div(co, V) * V, length = k * ci, rows = k * length;
  const int64_t most = ceil_div(wide, kWide * V);  // a group has whole tiles
  const int64_t groups = std::min(most, ceil_div(4 * rows * wide, kGroupBytes));
  const int64_t parts = std::min(n, ceil_div(kTasks, groups)), size = rows * wide;
  float* const totals = scratch(kTotals, parts * size);
  std::fill(totals, totals + parts * size, 0.f);
  const int64_t lines = std::clamp<int64_t>(kRowBytes / (4 * w.out * wide), 1, h.out);
  parallel(pool, parts * groups, [&](int64_t task) {
    const int64_t part = task / groups, group = task % groups;
    const int64_t begin = most * group / groups * kWide * V;
    const int64_t end = std::min(wide, most * (group + 1) / groups * kWide * V);
    float* const total = totals + part * size;
    for (int64_t i = n * part / parts; i < n * (part + 1) / parts; ++i) {
      const float* xi = padded(x + i * h.in * w.in * ci, h, w, ci);
      const float* gi = widened(g + i * h.out * w.out * co, h.out * w.out, co, wide);
      for (int64_t r = 0; r < h.out; r += lines)
        for (int64_t t = 0; t < k; ++t) {
          Rows from{nullptr, nullptr, h.in_step * w.padded * ci, w.in_step * ci, w.out * wide, wide,
                    std::min(lines, h.out - r), w.out};
          const float* row = xi + (r * h.in_step + t) * w.padded * ci;
          for (int64_t o = begin; o < end; o += kWide * V) {
            from.g = gi + r * w.out * wide + o;
            const bool narrow = end - o <= V;
            cut(length, kSums / (narrow ? 1 : 2), [&](int64_t j, int64_t m) {
              from.x = row + j;
              const SumPixels sum = narrow ? sum_pixels_of<1>(m) : sum_pixels_of<2>(m);
              sum(from, total + (t * length + j) * wide + o, wide);
            });
          }
        }
    }
  });
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t o = 0; o < co; ++o) {
      float sum = totals[r * wide + o];
      for (int64_t p = 1; p < parts; ++p) sum += totals[p * size + r * wide + o];
      dw[r * co + o] = sum;
    }
}

ffi::Error Conv(ffi::ThreadPool pool, F32 x, F32 w, Out y, int64_t s, int64_t p) {
  const auto a = x.dimensions(), b = w.dimensions(), c = y->dimensions();
  correlate(pool, false, a[0], forward_axis(a[1], c[1], b[0], s, p),
            forward_axis(a[2], c[2], b[0], s, p), a[3], b[3], b[0], x.typed_data(),
            w.typed_data(), y->typed_data());
  return ffi::Error::Success();
}

ffi::Error ConvDx(ffi::ThreadPool pool, F32 g, F32 w, Out dx, int64_t s, int64_t p) {
  const auto a = dx->dimensions(), b = w.dimensions(), c = g.dimensions();
  correlate(pool, true, a[0], backward_axis(a[1], c[1], b[0], s, p),
            backward_axis(a[2], c[2], b[0], s, p), b[3], b[2], b[0], g.typed_data(),
            w.typed_data(), dx->typed_data());
  return ffi::Error::Success();
}

ffi::Error ConvDw(ffi::ThreadPool pool, F32 x, F32 g, Out dw, int64_t s, int64_t p) {
  const auto a = x.dimensions(), b = dw->dimensions(), c = g.dimensions();
  kernel_gradient(pool, a[0], forward_axis(a[1], c[1], b[0], s, p),
                  forward_axis(a[2], c[2], b[0], s, p), a[3], b[3], b[0], x.typed_data(),
                  g.typed_data(), dw->typed_data());
  return ffi::Error::Success();
}

}  // namespace

#define HANDLER(name, function)                               \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(name, function,               \
                                ffi::Ffi::Bind()              \
                                    .Ctx<ffi::ThreadPool>()   \
                                    .Arg<F32>()               \
                                    .Arg<F32>()               \
                                    .Ret<F32>()               \
                                    .Attr<int64_t>("stride")  \
                                    .Attr<int64_t>("padding"))
HANDLER(conv2d, Conv);
HANDLER(conv2d_dx, ConvDx);
HANDLER(conv2d_dw, ConvDw);
