// Winograd's schemes for 3 × 3 kernels: what is done to tiles of images and to
// kernels before entries are multiplied, and after.
//
// A scheme computes M outputs of an axis from M + 2 inputs by M + 2 products,
// one for each point at which the polynomials behind it are evaluated (and one
// for infinity). Aᵀ, G and Bᵀ follow from the points.

#pragma once

#include "tiles.h"

namespace {
namespace winograd {

#define INLINE inline __attribute__((always_inline))

// Each map takes vectors a, `step` apart, to vectors b.

// F(2, 3): points 0, 1 and −1.
struct Two {
  static constexpr int out = 2, in = 4;
  static constexpr int tiles = 32, gradient_tiles = 64;  // at a time, about

  struct Input {  // Bᵀ
    static constexpr int from = 4, to = 4;
    static INLINE void apply(const Vec* a, int step, Vec* b) {
      b[0] = a[0] - a[2 * step];
      b[1] = a[step] + a[2 * step];
      b[2] = a[2 * step] - a[step];
      b[3] = a[step] - a[3 * step];
    }
  };
  struct Output {  // Aᵀ
    static constexpr int from = 4, to = 2;
    static INLINE void apply(const Vec* a, int step, Vec* b) {
      b[0] = a[0] + a[step] + a[2 * step];
      b[1] = a[step] - a[2 * step] - a[3 * step];
    }
  };
  struct Gradient {  // A
    static constexpr int from = 2, to = 4;
    static INLINE void apply(const Vec* a, int step, Vec* b) {
      b[0] = a[0];
      b[1] = a[0] + a[step];
      b[2] = a[0] - a[step];
      b[3] = -a[step];
    }
  };
  struct Kernel {  // G
    static constexpr int from = 3, to = 4;
    static INLINE void apply(const Vec* a, int step, Vec* b) {
      const Vec even = (a[0] + a[2 * step]) * 0.5f, odd = a[step] * 0.5f;
      b[0] = a[0];
      b[1] = even + odd;
      b[2] = even - odd;
      b[3] = a[2 * step];
    }
  };
  struct KernelGradient {  // Gᵀ
    static constexpr int from = 4, to = 3;
    static INLINE void apply(const Vec* a, int step, Vec* b) {
      const Vec sum = (a[step] + a[2 * step]) * 0.5f;
      b[0] = a[0] + sum;
      b[1] = (a[step] - a[2 * step]) * 0.5f;
      b[2] = sum + a[3 * step];
    }
  };
};

// F(4, 3): points 0, ±√½ and ±√2. Whole numbers, ±1 and ±2, would make rounding
// errors twice as large.
struct Four {
  static constexpr int out = 4, in = 6;
  static constexpr int tiles = 16, gradient_tiles = 32;
  static constexpr float p = 0.70710678118654752f, q = 1.41421356237309505f;

  struct Input {  // Bᵀ
    static constexpr int from = 6, to = 6;
    static INLINE void apply(const Vec* a, int step, Vec* b) {
      const Vec even_p = a[4 * step] - a[2 * step] * 2.f;
      const Vec odd_p = (a[3 * step] - a[step] * 2.f) * p;
      const Vec even_q = a[4 * step] - a[2 * step] * 0.5f;
      const Vec odd_q = (a[3 * step] - a[step] * 0.5f) * q;
      b[0] = a[0] + a[4 * step] - a[2 * step] * 2.5f;
      b[1] = even_p + odd_p;
      b[2] = even_p - odd_p;
      b[3] = even_q + odd_q;
      b[4] = even_q - odd_q;
      b[5] = a[step] + a[5 * step] - a[3 * step] * 2.5f;
    }
  };
  struct Output {  // Aᵀ
    static constexpr int from = 6, to = 4;
    static INLINE void apply(const Vec* a, int step, Vec* b) {
      const Vec even_p = a[step] + a[2 * step];
      const Vec odd_p = (a[step] - a[2 * step]) * p;
      const Vec even_q = a[3 * step] + a[4 * step];
      const Vec odd_q = (a[3 * step] - a[4 * step]) * q;
      b[0] = a[0] + even_p + even_q;
      b[1] = odd_p + odd_q;
      b[2] = even_p * 0.5f + even_q * 2.f;
      b[3] = odd_p * 0.5f + odd_q * 2.f + a[5 * step];
    }
  };
  struct Gradient {  // A
    static constexpr int from = 4, to = 6;
    static INLINE void apply(const Vec* a, int step, Vec* b) {
      const Vec even_p = a[0] + a[2 * step] * 0.5f;
      const Vec odd_p = (a[step] + a[3 * step] * 0.5f) * p;
      const Vec even_q = a[0] + a[2 * step] * 2.f;
      const Vec odd_q = (a[step] + a[3 * step] * 2.f) * q;
      b[0] = a[0];
      b[1] = even_p + odd_p;
      b[2] = even_p - odd_p;
      b[3] = even_q + odd_q;
      b[4] = even_q - odd_q;
      b[5] = a[3 * step];
    }
  };
  struct Kernel {  // G
    static constexpr int from = 3, to = 6;
    static INLINE void apply(const Vec* a, int step, Vec* b) {
      const Vec even_p = (a[0] + a[2 * step] * 0.5f) * (-2.f / 3);
      const Vec odd_p = a[step] * (-2.f / 3 * p);
      const Vec even_q = (a[0] + a[2 * step] * 2.f) * (1.f / 6);
      const Vec odd_q = a[step] * (1.f / 6 * q);
      b[0] = a[0];
      b[1] = even_p + odd_p;
      b[2] = even_p - odd_p;
      b[3] = even_q + odd_q;
      b[4] = even_q - odd_q;
      b[5] = a[2 * step];
    }
  };
  struct KernelGradient {  // Gᵀ
    static constexpr int from = 6, to = 3;
    static INLINE void apply(const Vec* a, int step, Vec* b) {
      const Vec even_p = (a[step] + a[2 * step]) * (-2.f / 3);
      const Vec odd_p = (a[step] - a[2 * step]) * (-2.f / 3 * p);
      const Vec even_q = (a[3 * step] + a[4 * step]) * (1.f / 6);
      const Vec odd_q = (a[3 * step] - a[4 * step]) * (1.f / 6 * q);
      b[0] = a[0] + even_p + even_q;
      b[1] = odd_p + odd_q;
      b[2] = even_p * 0.5f + even_q * 2.f + a[5 * step];
    }
  };
};

// T in both directions: from² vectors to to² of them, row by row.
template <class T>
INLINE void transform(const Vec* from, Vec* to) {
  Vec half[T::from * T::to];
  EACH (i, T::from) T::apply(from + i * T::from, 1, half + i * T::to);
  EACH (j, T::to) {
    Vec column[T::to];
    T::apply(half + j, T::to, column);
    EACH (i, T::to) to[i * T::to + j] = column[i];
  }
}

#undef INLINE

}  // namespace winograd
}  // namespace
