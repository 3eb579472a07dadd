// How outputs meet inputs along an axis.

#pragma once

#include "tiles.h"

namespace {

// Along one axis and for one remainder of the output's index by out_step,
// output first + out_step * i is the sum of inputs in_step * i + offset + t, of
// the padded input, times entry taps[t] of the kernel.
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
    axis.padded =
        std::max<int64_t>(axis.padded, (phase.count - 1) * axis.in_step +
                                           phase.offset + phase.taps.size());
}

Axis forward_axis(int64_t image, int64_t out, int64_t k, int64_t s, int64_t p) {
  Axis axis{image, out, p, 0, s, 1, {{0, out, 0, {}}}};
  for (int64_t t = 0; t < k; ++t) axis.phases[0].taps.push_back(t);
  measure(axis);
  return axis;
}

// Image entry i has got tap t from output (i + p - t) / s, if that is whole.
Axis backward_axis(int64_t image, int64_t out, int64_t k, int64_t s,
                   int64_t p) {
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

}  // namespace
