// The part of the plan for columns: a CTA's tile of them, how a column is cut in parts, and how many threads share a short one.
#pragma once
#include "reduce/dims.h"

namespace xgemm::reduce {

/// Are all strides whole vectors?
bool in_vectors(DimList& list, std::int64_t width);

/// The most lanes of a folded tile: then the positions of a thread are misaligned alike for any stride.
std::int64_t most_fold_lanes(const Plan& plan, std::int64_t width);

/// How many neighbouring positions of `columns` columns, of `count` dense positions in all, become one position of more
/// columns: as many as fill a tile, in whole vectors; 1 if one position fills most of its lanes.
std::int64_t repeat_of(const Plan& plan, std::int64_t columns, std::int64_t count, std::int64_t width);

/// A tile of `lanes` 16-byte columns and threads / lanes positions at a time. `outer`: kept groups of columns; `stride`: of the
/// reduced dim, 0 if there are several; `misaligned`: the base is. The misalignment may decide only which thread reads which
/// element, and `outer` only how many parts a CTA takes.
void plan_columns(Plan& plan, std::int64_t outer, std::int64_t width, std::int64_t stride, bool misaligned,
                  const DeviceProperties& gpu);

/// The most positions of many short columns: measured, and the trees' states of a CTA's least lanes fit its shared memory.
std::int64_t most_short_positions(const Plan& plan);

/// A thread a vector of columns, a column, or several threads (teams) either: as few as fill the GPU, all with the same bits.
void plan_short_columns(Plan& plan, DimList& kept, DimList& gone, std::int64_t width, std::uintptr_t address, int sm_count);

}  // namespace xgemm::reduce
