// The maps as sums over the taps of a kernel: any size, any stride.

#pragma once

#include "axes.h"

namespace {
namespace direct {

// An image with its border of zeros, or the image itself if it needs none.
const float* padded(const float* image, const Axis& h, const Axis& w,
                    int64_t c) {
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

// Output channels that are summed together, in one phase of each axis.
struct Block {
  const Phase *rows, *columns;
  int64_t first, channels, wide;
  std::vector<Taps> taps;
};

// Copies the kernel in the order in which it is used. `transposed` is for dx,
// whose outputs are the kernel's inputs.
std::vector<Block> pack(const Axis& h, const Axis& w, int64_t ci, int64_t co,
                        int64_t k, const float* kernel, bool transposed) {
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
                to[q] =
                    transposed ? tap[(o + q) * ci + e] : tap[e * co + o + q];
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
               const Axis& w, int64_t ci, int64_t co, int64_t k,
               const float* in, const float* kernel, float* out) {
  const auto blocks = pack(h, w, ci, co, k, kernel, transposed);
  parallel(pool, n, [&](int64_t image) {
    const float* x = padded(in + image * h.in * w.in * ci, h, w, ci);
    float* y = out + image * h.out * w.out * co;
    for (const Block& block : blocks)
      for (int64_t r = 0; r < block.rows->count; ++r) {
        const float* from = x + r * h.in_step * w.padded * ci;
        float* to = y +
                    ((block.rows->first + r * h.out_step) * w.out +
                     block.columns->first) *
                        co +
                    block.first;
        cut(block.columns->count, tall(block.wide),
            [&](int64_t c, int64_t size) {
              const SumTaps sum =
                  block.wide == 1 ? sum_taps_of<1>(size) : sum_taps_of<2>(size);
              sum(from + c * w.in_step * ci, w.in_step * ci, block.taps,
                  to + c * w.out_step * co, w.out_step * co, block.channels);
            });
      }
  });
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

constexpr int64_t kTasks = 8;  // at least, if there are as many images
constexpr int64_t kGroupBytes =
    1 << 18;  // of a kernel that a task sums: part of L2
constexpr int64_t kRowBytes =
    1 << 14;  // of the gradient's rows in use: part of L1

// A task sums some images into some output channels; tasks that have the
// channels in common are added in order.
template <class Pool>
void kernel_gradient(Pool& pool, int64_t n, const Axis& h, const Axis& w,
                     int64_t ci, int64_t co, int64_t k, const float* x,
                     const float* g, float* dw) {
  const int64_t wide = ceil_div(co, V) * V, length = k * ci, rows = k * length;
  const int64_t most = ceil_div(wide, kWide * V);  // a group has whole tiles
  const int64_t groups = std::min(most, ceil_div(4 * rows * wide, kGroupBytes));
  const int64_t parts = std::min(n, ceil_div(kTasks, groups)),
                size = rows * wide;
  float* const totals = scratch(kTotals, parts * size);
  std::fill(totals, totals + parts * size, 0.f);
  const int64_t lines =
      std::clamp<int64_t>(kRowBytes / (4 * w.out * wide), 1, h.out);
  parallel(pool, parts * groups, [&](int64_t task) {
    const int64_t part = task / groups, group = task % groups;
    const int64_t begin = most * group / groups * kWide * V;
    const int64_t end = std::min(wide, most * (group + 1) / groups * kWide * V);
    float* const total = totals + part * size;
    for (int64_t i = n * part / parts; i < n * (part + 1) / parts; ++i) {
      const float* xi = padded(x + i * h.in * w.in * ci, h, w, ci);
      const float* gi =
          widened(g + i * h.out * w.out * co, h.out * w.out, co, wide);
      for (int64_t r = 0; r < h.out; r += lines)
        for (int64_t t = 0; t < k; ++t) {
          Rows from{
              nullptr,      nullptr, h.in_step * w.padded * ci,  w.in_step * ci,
              w.out * wide, wide,    std::min(lines, h.out - r), w.out};
          const float* row = xi + (r * h.in_step + t) * w.padded * ci;
          for (int64_t o = begin; o < end; o += kWide * V) {
            from.g = gi + r * w.out * wide + o;
            const bool narrow = end - o <= V;
            cut(length, kSums / (narrow ? 1 : 2), [&](int64_t j, int64_t m) {
              from.x = row + j;
              const SumPixels sum =
                  narrow ? sum_pixels_of<1>(m) : sum_pixels_of<2>(m);
              sum(from, total + (t * length + j) * wide + o, wide);
            });
          }
        }
    }
  });
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t o = 0; o < co; ++o) {
      float sum = totals[r * wide + o];
      for (int64_t p = 1; p < parts; ++p)
        sum += totals[p * size + r * wide + o];
      dw[r * co + o] = sum;
    }
}

}  // namespace direct
}  // namespace
