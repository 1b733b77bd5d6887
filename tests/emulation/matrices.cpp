// mma.sync, ldmatrix and stmatrix of a warp.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "device/ptx/mma.cuh"
#include "device/ptx/mma_f64.cuh"
#include "device/ptx/stmatrix.cuh"
#include "state.h"

namespace emulation {
namespace {

struct Matrices {
  std::uint32_t* registers;
  std::uint32_t address;
  Where where;
};

/// ldmatrix or stmatrix: lane 8 i + row has the address of a row of matrix i.
template <bool kLoad, bool kTransposed>
void transfer(std::uint32_t* registers, std::uint32_t address, Where where) {
  Matrices mine{registers, address, where};
  const auto all = [](Arguments32 lanes) {
    if (std::count(lanes, lanes + 32, nullptr)) fail("ldmatrix or stmatrix of a warp some of whose lanes have exited");
    for (int i = 0; i < 4; ++i)
      for (int row = 0; row < 8; ++row) {
        const Matrices& at = *static_cast<const Matrices*>(lanes[8 * i + row]);
        auto* const elements = static_cast<std::uint16_t*>(shared_pointer(at.address, 16, 16, at.where));
        for (int column = 0; column < 8; ++column) {
          const int r = kTransposed ? column : row, c = kTransposed ? row : column;
          std::uint32_t* const word = static_cast<const Matrices*>(lanes[4 * r + c / 2])->registers + i;
          std::uint16_t& half = reinterpret_cast<std::uint16_t*>(word)[c % 2];
          (kLoad ? half : elements[column]) = kLoad ? elements[column] : half;
        }
      }
  };
  warp_collective(~0u, &mine, all, kLoad ? "ldmatrix" : "stmatrix", where);
}
template <bool kTransposed>
void load(std::uint32_t* registers, std::uint32_t address, Where where) {
  plain_read(shared_pointer(address, 16, 16, where), 16);
  transfer<true, kTransposed>(registers, address, where);
}
template <bool kTransposed>
void store(const std::uint32_t* registers, std::uint32_t address, Where where) {
  transfer<false, kTransposed>(const_cast<std::uint32_t*>(registers), address, where);
}

struct Product {
  MmaType type;
  float* d;
  const std::uint32_t* a;
  std::uint32_t b[2];
};

void multiply(Arguments32 lanes) {
  double a[16][16] = {}, b[16][8] = {};
  for (int lane = 0; lane < 32; ++lane) {
    if (!lanes[lane]) fail("mma of a warp some of whose lanes have exited");
    const Product& p = *static_cast<const Product*>(lanes[lane]);
    if (p.type == MmaType::tf32) {
      for (int i = 0; i < 4; ++i) a[lane / 4 + i % 2 * 8][lane % 4 + i / 2 * 4] = operand_value(p.type, p.a[i]);
      for (int i = 0; i < 2; ++i) b[lane % 4 + i * 4][lane / 4] = operand_value(p.type, p.b[i]);
      continue;
    }
    for (int half = 0; half < 2; ++half) {
      const auto value = [&](std::uint32_t word) { return operand_value(p.type, word >> 16 * half & 0xffff); };
      for (int i = 0; i < 4; ++i) a[lane / 4 + i % 2 * 8][lane % 4 * 2 + half + i / 2 * 8] = value(p.a[i]);
      for (int i = 0; i < 2; ++i) b[lane % 4 * 2 + half + i * 8][lane / 4] = value(p.b[i]);
    }
  }
  double c[16][8] = {};
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; ++k)
      for (int column = 0; column < 8; ++column) c[row][column] += a[row][k] * b[k][column];
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 4; ++i) {
      float& d = static_cast<const Product*>(lanes[lane])->d[i];
      d = static_cast<float>(c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2] + static_cast<double>(d));
    }
}

struct ProductF64 {
  double* d;
  const double *a, *b;
};

/// 8 kHigh rows, 4 kDeep k.
template <int kHigh, int kDeep>
void multiply_f64(Arguments32 lanes) {
  double a[8 * kHigh][4 * kDeep], b[4 * kDeep][8];
  for (int lane = 0; lane < 32; ++lane) {
    if (!lanes[lane]) fail("mma of a warp some of whose lanes have exited");
    const ProductF64& p = *static_cast<const ProductF64*>(lanes[lane]);
    for (int i = 0; i < kDeep; ++i) {
      for (int h = 0; h < kHigh; ++h) a[lane / 4 + 8 * h][4 * i + lane % 4] = p.a[kDeep * h + i];
      b[4 * i + lane % 4][lane / 4] = p.b[i];
    }
  }
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < 2 * kHigh; ++i) {
      double& d = static_cast<const ProductF64*>(lanes[lane])->d[i];
      for (int k = 0; k < 4 * kDeep; ++k) d = std::fma(a[lane / 4 + i / 2 * 8][k], b[k][lane % 4 * 2 + i % 2], d);
    }
}

}  // namespace

void mma_m16n8(MmaType type, float* d, const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1, Where where) {
  Product mine{type, d, a, {b0, b1}};
  warp_collective(~0u, &mine, multiply, "mma", where);
}

}  // namespace emulation

namespace xgemm::ptx {

using namespace emulation;

void ldmatrix(std::uint32_t (&r)[4], std::uint32_t address, Where where) { load<false>(r, address, where); }
void ldmatrix_transposed(std::uint32_t (&r)[4], std::uint32_t address, Where where) { load<true>(r, address, where); }
void ldmatrix(std::uint32_t (&r)[4], const void* row, Where where) { load<false>(r, shared_address_of(row, where), where); }
void ldmatrix_transposed(std::uint32_t (&r)[4], const void* row, Where where) {
  load<true>(r, shared_address_of(row, where), where);
}
void store_matrices(std::uint32_t address, const std::uint32_t (&r)[4], Where where) { store<false>(r, address, where); }
void store_matrices_transposed(std::uint32_t address, const std::uint32_t (&r)[4], Where where) {
  store<true>(r, address, where);
}
void mma_m16n8k16(double (&d)[4], const double (&a)[2][4], const double (&b)[4], Where where) {
  ProductF64 mine{d, *a, b};
  warp_collective(~0u, &mine, multiply_f64<2, 4>, "mma", where);
}
void mma_m8n8k4(double (&d)[2], double a, double b, Where where) {
  ProductF64 mine{d, &a, &b};
  warp_collective(~0u, &mine, multiply_f64<1, 1>, "mma", where);
}

}  // namespace xgemm::ptx
