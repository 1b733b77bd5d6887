// Problem -> matmul's plan: the candidate of least predicted time among all families, and the few rules that are not times.
// Pure host code, tested without a GPU.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "matmul/candidate.h"

namespace xgemm::matmul {

struct Plan {
  Candidate kernel;             ///< computes the problem; of a gated one with `up`, its second product (gate_product)
  std::optional<Candidate> up;  ///< gated, as two products: the first (up_product)
};

/// `forced`: a name that is_plan_name knows: the fastest of its family's kernels if it can do the problem, else CUDA cores.
/// Empty: the fastest of all.
Plan make_plan(const Problem& p, const DeviceProperties& gpu, std::string_view forced = {});

/// A plan of kernels that take any strides and may be launched more than once for a problem: for batch dims beyond
/// kMaxBatchDims, one launch each, and for tensor maps that the driver rejects.
Plan make_plain_plan(const Problem& p, const DeviceProperties& gpu, std::string_view forced = {});

/// gemv or tiles on CUDA cores, which can do every problem. `forced`: as in `make_plan`.
Candidate plan_cuda_cores(const Problem& p, const DeviceProperties& gpu, std::string_view forced = {});

/// fp32: is the split in fp16 parts faster than CUDA cores? With batch invariance the question is put for many rows, as the
/// bits must not depend on M.
bool wgmma_pays(const Problem& p, const DeviceProperties& gpu, const WgmmaPlan& wgmma);

/// Is `forced` the name of a tile, a kernel or a family? `plan_names`: all of them, for a message.
bool is_plan_name(std::string_view forced);
std::string plan_names();

}  // namespace xgemm::matmul
