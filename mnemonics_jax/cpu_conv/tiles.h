// What all maps are made of: vectors, threads, and tiles that stay in
// registers.

#pragma once

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

using std::int64_t;

// A loop without a loop: what it works on can stay in registers.
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 64")
#endif
#define EACH(i, count) UNROLL for (int i = 0; i < (count); ++i)

namespace {

// V floats make a vector; kSums vectors of sums fit the registers beside
// operands.
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
constexpr int tall(int wide) {
  return wide == 1 ? std::min(kSums, 16) : kSums / wide;
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Memory that a thread keeps between calls: fresh pages are expensive.
enum Purpose {
  kPadded,
  kWidened,
  kWeights,
  kTotals,
  kInputs,
  kOutputs,
  kPurposes
};
float* scratch(Purpose purpose, int64_t size) {
  thread_local std::vector<float> kept[kPurposes];
  auto& buffer = kept[purpose];
  constexpr int64_t kLine =
      16;  // floats; vectors should not lie across two lines
  if (static_cast<int64_t>(buffer.size()) < size + kLine)
    buffer.resize(size + kLine);
  const auto past = reinterpret_cast<std::uintptr_t>(buffer.data()) / 4 % kLine;
  return buffer.data() + (kLine - past) % kLine;
}

// Does tasks 0 to count - 1 on the threads of the pool. The caller works, too:
// a pool that is busy with other things cannot block it.
template <class Pool>
void parallel(Pool& pool, int64_t count,
              const std::function<void(int64_t)>& task) {
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

// One row of a kernel: `length` contiguous floats of an image, `offset` from
// where an output begins to see it, times as many rows of `weights`.
struct Taps {
  int64_t offset, length;
  const float* weights;
};

// T neighbouring outputs of B vectors of channels; `channels` of them are real.
template <int T, int B>
void sum_taps(const float* in, int64_t step, const std::vector<Taps>& taps,
              float* out, int64_t out_step, int64_t channels) {
  Vec sum[T][B];
  EACH (i, T)
    EACH (b, B) sum[i][b] = Vec{};
  for (const Taps& row : taps) {
    const float *x = in + row.offset, *w = row.weights;
    int64_t j = row.length;
    for (; j >= 4; j -= 4, x += 4, w += 4 * B * V) {
      const float* pixel = x;
      EACH (i, T) {
        EACH (u, 4)
          EACH (b, B) sum[i][b] += load(w + (u * B + b) * V) * pixel[u];
        pixel += step;
      }
    }
    for (; j > 0; --j, ++x, w += B * V)
      EACH (i, T)
        EACH (b, B) sum[i][b] += load(w + b * V) * x[i * step];
  }
  float spare[T * B * V];
  const bool whole = channels >= B * V;
  float* const to = whole ? out : spare;
  const int64_t to_step = whole ? out_step : B * V;
  EACH (i, T)
    EACH (b, B) store(to + i * to_step + b * V, sum[i][b]);
  if (whole) return;
  for (int i = 0; i < T; ++i)
    std::memcpy(out + i * out_step, spare + i * B * V, 4 * channels);
}

using SumTaps = void (*)(const float*, int64_t, const std::vector<Taps>&,
                         float*, int64_t, int64_t);
template <int B, int... I>
SumTaps sum_taps_of(int64_t size, std::integer_sequence<int, I...>) {
  static constexpr SumTaps table[] = {sum_taps<I + 1, B>...};
  return table[size - 1];
}
template <int B>
SumTaps sum_taps_of(int64_t size) {
  return sum_taps_of<B>(size, std::make_integer_sequence<int, tall(B)>());
}

// Adds x[m] * g[:] of the pixels of some rows to M rows and B vectors of a
// kernel.
struct Rows {
  const float *x, *g;
  int64_t x_row, x_step, g_row, g_step, rows, columns;
};

template <int M, int B>
void sum_pixels(const Rows& rows, float* total, int64_t stride) {
  Vec sum[M][B];
  EACH (m, M)
    EACH (b, B) sum[m][b] = Vec{};
  for (int64_t r = 0; r < rows.rows; ++r) {
    const float *x = rows.x + r * rows.x_row, *g = rows.g + r * rows.g_row;
    for (int64_t c = 0; c < rows.columns;
         ++c, x += rows.x_step, g += rows.g_step) {
      Vec vectors[B];
      EACH (b, B) vectors[b] = load(g + b * V);
      EACH (m, M)
        EACH (b, B) sum[m][b] += vectors[b] * x[m];
    }
  }
  EACH (m, M)
    EACH (b, B) {
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

}  // namespace
