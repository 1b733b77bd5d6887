// Arguments of the kernels of fp32 attention by fp16 parts.
#pragma once
#include "attention/mma/arguments.h"
#include "device/index_map.h"

namespace xgemm::attention {

/// split.cuh's result for a block of rows of an operand; merged, the result for a key head and its operands.
enum SplitStatus : unsigned {
  kSplitDensity = 0xffffu,  ///< the smallest density of a row, in 1/256 of its columns; 512: all zeros
  kSplitLossy = 1u << 16,   ///< some element has fewer than 22 bits (one part: 11)
  kSplitFailed = 1u << 17   ///< the parts cannot represent it
};

/// An operand and its parts. Rows of a batch: keys, or for queries position * group + head.
struct SplitOperand {
  const float* data;
  std::int64_t row, column, head, inner, outer;  ///< strides, in elements; `head`: of query heads in their group
  bool vector;                                   ///< rows are whole, aligned vectors of 16 bytes
  int rows, columns;
  ShortDivider group;    ///< query heads of a row's position; 1 for keys and values
  ShortDivider blocks;   ///< of a batch, of split_block_rows() rows
  ShortDivider batches;  ///< inner batches
  int ctas;              ///< blocks in all
  void* parts;           ///< fp16: [high(, low)][outer][inner][row][padded columns]
  std::int64_t part;     ///< elements from the high to the low part
  int padded;            ///< columns, a multiple of 8
  void* scales;          ///< what takes the power of two out again: queries float [batch][row]; keys bf16 [batch][block][row];
                         ///< values bf16 [batch][block][value_size]
  unsigned* status;      ///< [batch][block]: SplitStatus
};

struct SplitOperands {
  SplitOperand query, key, value;
};

/// Arguments of the attention kernel. Maps: query (D, group, Sq, batch, part); key and value (D, Sk, batch, part). Steps: per
/// (inner, outer) batch in the maps' batch dim.
struct SplitArguments : TileArguments {
  const float* query_scales;                       ///< [batch][position][head]
  const std::uint16_t *key_scales, *value_scales;  ///< bf16 powers of two: [batch][block][key], [batch][block][column]
  int key_blocks;                                  ///< of split.cuh, of a batch
  float correction;                                ///< of scores
  // Key heads that the parts cannot represent.
  const unsigned *query_status, *key_status, *value_status;  ///< of split.cuh; `key_blocks` per batch, of queries `query_blocks`
  int query_blocks;
  int batches;       ///< key heads
  unsigned* failed;  ///< [key head]: 1 if CUDA cores have to compute it
};

/// Arguments of mma_kernel.cu, which reads the high parts by their strides; the tensor maps are empty.
struct SplitMmaArguments : SplitArguments {
  MmaArguments::Operand queries, keys, values;
  std::int64_t query_part, key_part, value_part;  ///< bytes from the high to the low part
  int columns, value_columns;                     ///< of the parts
};

}  // namespace xgemm::attention
