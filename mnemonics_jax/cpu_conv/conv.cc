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
// Kernels of 3 × 3 and stride 1, most of a ResNet, need fewer products by
// Winograd's scheme (winograd.h), if they are not too large and channels fill
// vectors; direct.h does all others.
//
// Vectors are those of GCC and Clang: the same source makes AVX-512, AVX2, SSE
// and NEON. Every sum has one order, whatever the number of threads.

#include "direct.h"
#include "winograd.h"
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;
using F32 = ffi::Buffer<ffi::F32>;
using Out = ffi::Result<F32>;

namespace {

template <class Pool>
void correlate(Pool& pool, bool transposed, int64_t n, const Axis& h,
               const Axis& w, int64_t ci, int64_t co, int64_t k,
               const float* in, const float* kernel, float* out) {
  using namespace winograd;
  const auto run =
      suits<Four>(h, w, ci, co, kReadBytes)  ? winograd::correlate<Four, Pool>
      : suits<Two>(h, w, ci, co, kReadBytes) ? winograd::correlate<Two, Pool>
                                             : direct::correlate<Pool>;
  run(pool, transposed, n, h, w, ci, co, k, in, kernel, out);
}

template <class Pool>
void kernel_gradient(Pool& pool, int64_t n, const Axis& h, const Axis& w,
                     int64_t ci, int64_t co, int64_t k, const float* x,
                     const float* g, float* dw) {
  using namespace winograd;
  const auto run = suits<Four>(h, w, ci, co, kSumBytes)
                       ? winograd::kernel_gradient<Four, Pool>
                   : suits<Two>(h, w, ci, co, kSumBytes)
                       ? winograd::kernel_gradient<Two, Pool>
                       : direct::kernel_gradient<Pool>;
  run(pool, n, h, w, ci, co, k, x, g, dw);
}

ffi::Error Conv(ffi::ThreadPool pool, F32 x, F32 w, Out y, int64_t s,
                int64_t p) {
  const auto a = x.dimensions(), b = w.dimensions(), c = y->dimensions();
  correlate(pool, false, a[0], forward_axis(a[1], c[1], b[0], s, p),
            forward_axis(a[2], c[2], b[0], s, p), a[3], b[3], b[0],
            x.typed_data(), w.typed_data(), y->typed_data());
  return ffi::Error::Success();
}

ffi::Error ConvDx(ffi::ThreadPool pool, F32 g, F32 w, Out dx, int64_t s,
                  int64_t p) {
  const auto a = dx->dimensions(), b = w.dimensions(), c = g.dimensions();
  correlate(pool, true, a[0], backward_axis(a[1], c[1], b[0], s, p),
            backward_axis(a[2], c[2], b[0], s, p), b[3], b[2], b[0],
            g.typed_data(), w.typed_data(), dx->typed_data());
  return ffi::Error::Success();
}

ffi::Error ConvDw(ffi::ThreadPool pool, F32 x, F32 g, Out dw, int64_t s,
                  int64_t p) {
  const auto a = x.dimensions(), b = dw->dimensions(), c = g.dimensions();
  kernel_gradient(pool, a[0], forward_axis(a[1], c[1], b[0], s, p),
                  forward_axis(a[2], c[2], b[0], s, p), a[3], b[3], b[0],
                  x.typed_data(), g.typed_data(), dw->typed_data());
  return ffi::Error::Success();
}

}  // namespace

#define HANDLER(name, function)                              \
  XLA_FFI_DEFINE_HANDLER_SYMBOL(name, function,              \
                                ffi::Ffi::Bind()             \
                                    .Ctx<ffi::ThreadPool>()  \
                                    .Arg<F32>()              \
                                    .Arg<F32>()              \
                                    .Ret<F32>()              \
                                    .Attr<int64_t>("stride") \
                                    .Attr<int64_t>("padding"))
HANDLER(conv2d, Conv);
HANDLER(conv2d_dx, ConvDx);
HANDLER(conv2d_dw, ConvDw);
