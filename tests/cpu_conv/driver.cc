// conv.cc without JAX: random geometries against loops in double precision, and
// bits that must not depend on the number of threads. Prints the worst error.

#include <cmath>
#include <cstdio>
#include <random>
#include <thread>

#include "conv.cc"

struct Pool {
  int64_t count;
  std::vector<std::thread> threads;
  int64_t num_threads() const { return count; }
  void Schedule(std::function<void()> work) {
    threads.emplace_back(std::move(work));
  }
  void join() {
    for (auto& thread : threads) thread.join();
    threads.clear();
  }
};

struct Case {
  int64_t n, h, w, ci, co, k, s, p;
  int64_t oh() const { return (h + 2 * p - k) / s + 1; }
  int64_t ow() const { return (w + 2 * p - k) / s + 1; }
};

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

struct Maps {
  Floats y, dx, dw;
  bool operator==(const Maps& o) const {
    return y == o.y && dx == o.dx && dw == o.dw;
  }
};

Maps run(const Case& c, const Floats& x, const Floats& w, const Floats& g,
         int64_t threads) {
  Pool pool{threads, {}};
  Maps maps{Floats(g.size(), NAN), Floats(x.size(), NAN),
            Floats(w.size(), NAN)};
  const auto across = [&](auto make) {
    return std::make_pair(make(c.h, c.oh(), c.k, c.s, c.p),
                          make(c.w, c.ow(), c.k, c.s, c.p));
  };
  const auto [fh, fw] = across(forward_axis);
  const auto [bh, bw] = across(backward_axis);
  correlate(pool, false, c.n, fh, fw, c.ci, c.co, c.k, x.data(), w.data(),
            maps.y.data());
  pool.join();
  correlate(pool, true, c.n, bh, bw, c.co, c.ci, c.k, g.data(), w.data(),
            maps.dx.data());
  pool.join();
  kernel_gradient(pool, c.n, fh, fw, c.ci, c.co, c.k, x.data(), g.data(),
                  maps.dw.data());
  pool.join();
  return maps;
}

double error(const Floats& actual, const Doubles& expected) {
  double worst = 0, size = 1e-9;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double difference = std::abs(actual[i] - expected[i]);
    if (!(difference <= worst)) worst = difference;  // NaN counts
    size = std::max(size, std::abs(expected[i]));
  }
  return worst / size;
}

double check(const Case& c, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Floats x(c.n * c.h * c.w * c.ci), w(c.k * c.k * c.ci * c.co),
      g(c.n * c.oh() * c.ow() * c.co);
  for (Floats* array : {&x, &w, &g})
    for (float& value : *array) value = normal(random);
  Doubles y(g.size()), dx(x.size()), dw(w.size());
  for (int64_t n = 0; n < c.n; ++n)
    for (int64_t i = 0; i < c.oh(); ++i)
      for (int64_t j = 0; j < c.ow(); ++j)
        for (int64_t a = 0; a < c.k; ++a)
          for (int64_t b = 0; b < c.k; ++b) {
            const int64_t r = i * c.s + a - c.p, q = j * c.s + b - c.p;
            if (r < 0 || r >= c.h || q < 0 || q >= c.w) continue;
            for (int64_t e = 0; e < c.ci; ++e)
              for (int64_t o = 0; o < c.co; ++o) {
                const int64_t at_x = ((n * c.h + r) * c.w + q) * c.ci + e;
                const int64_t at_w = ((a * c.k + b) * c.ci + e) * c.co + o;
                const int64_t at_g = ((n * c.oh() + i) * c.ow() + j) * c.co + o;
                y[at_g] += double(x[at_x]) * w[at_w];
                dx[at_x] += double(g[at_g]) * w[at_w];
                dw[at_w] += double(x[at_x]) * g[at_g];
              }
          }
  const Maps maps = run(c, x, w, g, 1);
  for (int64_t threads : {2, 3, 7})
    if (!(run(c, x, w, g, threads) == maps)) return INFINITY;
  return std::max({error(maps.y, y), error(maps.dx, dx), error(maps.dw, dw)});
}

int main() {
  std::mt19937 random(0);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  std::vector<Case> cases = {
      {9, 32, 32, 16, 16, 3, 1, 1},
      {3, 32, 32, 3, 16, 3, 1, 1},
      {3, 32, 32, 16, 32, 3, 2, 1},
      {3, 16, 16, 32, 64, 1, 2, 0},
      {2, 8, 8, 64, 64, 3, 1, 1},
      {1, 28, 30, 3, 64, 7, 2, 3},
      {2, 7, 7, 128, 128, 3, 1, 1},
      {2, 14, 14, 40, 72, 3, 1, 1},
      // Too large for tiles of 4 × 4 outputs: conv and dx, then dw.
      {4, 5, 6, 144, 208, 3, 1, 1},
      {1, 5, 36, 208, 144, 3, 1, 0},
      {1, 2, 3, 144, 208, 3, 1, 4},
      {9, 5, 5, 80, 96, 3, 1, 1},
      {1, 7, 26, 96, 80, 3, 1, 2}};
  while (cases.size() < 120) {
    const Case c{pick(1, 11), pick(1, 14), pick(1, 19), pick(1, 36),
                 pick(1, 50), pick(1, 7),  pick(1, 4),  pick(0, 4)};
    if (c.h + 2 * c.p >= c.k && c.w + 2 * c.p >= c.k) cases.push_back(c);
  }
  while (cases.size() < 160) {  // those that Winograd's scheme suits
    const Case c{pick(1, 9),      pick(1, 18), pick(1, 18), 16 * pick(1, 3),
                 16 * pick(1, 4), 3,           1,           pick(0, 4)};
    if (c.h + 2 * c.p >= 3 && c.w + 2 * c.p >= 3) cases.push_back(c);
  }
  double worst = 0;
  for (const Case& c : cases) {
    const double found = check(c, random);
    if (!(found < 1e-5))
      std::printf("%g at n %ld h %ld w %ld ci %ld co %ld k %ld s %ld p %ld\n",
                  found, c.n, c.h, c.w, c.ci, c.co, c.k, c.s, c.p);
    if (!(found <= worst)) worst = found;
  }
  std::printf("%zu geometries, V = %d, worst %g\n", cases.size(), V, worst);
  return worst < 1e-5 ? 0 : 1;
}
