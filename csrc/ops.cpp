// Every schema of torch.ops.xgemm, once. Each op is implemented in the folder of its family, which registers itself.
#include "torch/register.h"

STABLE_TORCH_LIBRARY(XGEMM_NAMESPACE, m) {
  // ---- matrix products: fp32, fp16, bf16, fp64; any strides ----------------------------------------------------------------
  // torch.matmul's semantics, 1-D to N-D with broadcast batch dims. For fp32 inputs `precision` is "highest" (at least as
  // accurate as SGEMM, by the fastest means), "ieee" (fp32 multiply-adds), "high" (TF32 or better) or "medium" (the same on a
  // GPU; bf16 or better on the CPU).
  m.def("matmul(Tensor a, Tensor b, *, str precision=\"highest\") -> Tensor");
  // beta * input + alpha * (mat1 @ mat2); `input` broadcasts to the product's shape and is not read when beta is 0.
  m.def("addmm(Tensor input, Tensor mat1, Tensor mat2, *, float beta=1, float alpha=1, str precision=\"highest\") -> Tensor");
  // activation(input @ weight^T + bias) + residual, fused; activation: none, relu, gelu, gelu_tanh, silu.
  m.def(
      "linear(Tensor input, Tensor weight, Tensor? bias=None, *, str activation=\"none\", Tensor? residual=None, "
      "str precision=\"highest\") -> Tensor");
  // The split copy of a weight (N, K) that fp32 products on tensor cores else make at every call; empty if none would use it.
  m.def("prepare(Tensor weight, *, str precision=\"highest\") -> Tensor");
  // linear with such a copy, which must be of this weight's current values: the op cannot check it. With few rows only this
  // makes tensor cores pay.
  m.def(
      "linear_prepared(Tensor input, Tensor weight, Tensor prepared, Tensor? bias=None, *, str activation=\"none\", "
      "Tensor? residual=None, str precision=\"highest\") -> Tensor");
  // activation(input @ weight_gate^T + bias_gate) * (input @ weight_up^T + bias_up): SwiGLU etc. in one pass; in fp32 or wider,
  // rounded once.
  m.def(
      "gated_linear(Tensor input, Tensor weight_gate, Tensor weight_up, Tensor? bias_gate=None, Tensor? bias_up=None, *, "
      "str activation=\"silu\", str precision=\"highest\") -> Tensor");

  // ---- reductions over any dims (all of them when dim is None or empty), any strides ----------------------------------------
  m.def("sum(Tensor input, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor");
  m.def("mean(Tensor input, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor");
  m.def("amax(Tensor input, int[1]? dim=None, bool keepdim=False) -> Tensor");
  m.def("amin(Tensor input, int[1]? dim=None, bool keepdim=False) -> Tensor");
  m.def("argmax(Tensor input, int? dim=None, bool keepdim=False) -> Tensor");
  m.def("argmin(Tensor input, int? dim=None, bool keepdim=False) -> Tensor");
  m.def("logsumexp(Tensor input, int[1]? dim=None, bool keepdim=False) -> Tensor");

  // torch.nn.functional.cross_entropy for class indices (int64, uint8): input (C), (N, C) or (N, C, ...), target without the C.
  // One read of the logits; reduction: none, mean, sum. On CUDA a target that is neither a class nor ignore_index gives NaN.
  m.def(
      "cross_entropy(Tensor input, Tensor target, *, int ignore_index=-100, str reduction=\"mean\", "
      "float label_smoothing=0.0) -> Tensor");

  // ---- softmax over one dim of any length ----------------------------------------------------------------------------------
  m.def("softmax(Tensor input, int dim, *, ScalarType? dtype=None) -> Tensor");
  m.def("log_softmax(Tensor input, int dim, *, ScalarType? dtype=None) -> Tensor");
  // softmax(scale * input + mask); mask broadcasts to input: bool (True takes part) or additive, of input's dtype or fp32. A
  // fully masked row is NaN, as in softmax.
  m.def("scaled_masked_softmax(Tensor input, Tensor? mask=None, float scale=1.0, int dim=-1) -> Tensor");

  // The k largest elements (0 <= k <= 64) of softmax(input, dim), in descending order, and their indices, as for a
  // mixture-of-experts router. Of equal elements the first ones; NaN counts as largest. renormalize: divided by their own sum.
  m.def(
      "topk_softmax(Tensor input, int k, int dim=-1, *, bool renormalize=True, ScalarType? dtype=None) -> (Tensor values, "
      "Tensor indices)");

  // ---- attention: scaled_dot_product_attention's names and layout (..., H, S, D) -------------------------------------------
  // attn_mask: bool (True takes part) or additive, broadcast to (..., H, Sq, Sk). causal_alignment: the diagonal of row i is
  // key i ("top_left", as in SDPA) or key i + Sk - Sq ("bottom_right"). is_causal: the row sees keys up to its diagonal.
  // window: it sees only so many keys to the left and to the right of its diagonal, and the diagonal; -1 for no limit. softcap,
  // unless 0: scores become softcap * tanh(score / softcap) before masks. sinks: broadcast to (..., H); the logit of one more
  // key, without a value. precision: as matmul's. A row with every key masked gives 0.
  m.def(
      "attention(Tensor query, Tensor key, Tensor value, *, Tensor? attn_mask=None, bool is_causal=False, float? scale=None, "
      "bool enable_gqa=False, str causal_alignment=\"top_left\", int[2] window=[-1, -1], float softcap=0., Tensor? sinks=None, "
      "str precision=\"highest\") -> Tensor");
  // The same, and the natural log-sum-exp of each row's scaled scores and sink, (..., H, Sq) in fp32 (fp64 for fp64 inputs).
  m.def(
      "attention_lse(Tensor query, Tensor key, Tensor value, *, Tensor? attn_mask=None, bool is_causal=False, "
      "float? scale=None, bool enable_gqa=False, str causal_alignment=\"top_left\", int[2] window=[-1, -1], float softcap=0., "
      "Tensor? sinks=None, str precision=\"highest\") -> (Tensor output, Tensor logsumexp)");

  // ---- attention over sequences of different lengths: layout (..., S, H, D); key heads divide query heads -------------------
  // Packed sequences, with torch.nn.attention.varlen.varlen_attn's names. cu_seq_q, cu_seq_k (sequences + 1): sequence i is rows
  // [cu[i], cu[i + 1]), at most max_q and max_k of them. seqused_k (sequences): only so many of its keys are there. block_table
  // (sequences, columns): key and value are pages (pages, page size, Hkv, D) instead, and row r of sequence i is row r % page
  // size of page block_table[i][r / page size]; then seqused_k gives lengths and cu_seq_k is not read. All of int32, on the
  // device. The diagonal of query i is key i + keys - queries. A row that sees no key gives 0; one of no sequence too on the
  // CPU, on CUDA it is not written.
  m.def(
      "attention_varlen(Tensor query, Tensor key, Tensor value, Tensor cu_seq_q, Tensor? cu_seq_k, SymInt max_q, SymInt max_k, "
      "*, float? scale=None, bool is_causal=False, int[2] window=[-1, -1], float softcap=0., Tensor? sinks=None, "
      "Tensor? seqused_k=None, Tensor? block_table=None, str precision=\"highest\") -> Tensor");
  // The same, and the log-sum-exp, (H, query rows).
  m.def(
      "attention_varlen_lse(Tensor query, Tensor key, Tensor value, Tensor cu_seq_q, Tensor? cu_seq_k, SymInt max_q, "
      "SymInt max_k, *, float? scale=None, bool is_causal=False, int[2] window=[-1, -1], float softcap=0., Tensor? sinks=None, "
      "Tensor? seqused_k=None, Tensor? block_table=None, str precision=\"highest\") -> (Tensor output, Tensor logsumexp)");
  // A batch of queries (B, Sq, H, D) over caches (B, S, Hkv, D), or pages with block_table as above, of which sequence i has
  // filled cache_seqlens[i] rows. key and value (B, new, Hkv, D) are first written behind these, and seen: the diagonal of query
  // i is key i + cache_seqlens + new - Sq. cache_seqlens stays as it is.
  m.def(
      "attention_with_cache(Tensor query, Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor cache_seqlens, *, "
      "Tensor? key=None, Tensor? value=None, Tensor? block_table=None, float? scale=None, bool is_causal=False, "
      "int[2] window=[-1, -1], float softcap=0., Tensor? sinks=None, str precision=\"highest\") -> Tensor");
  // The same, and the log-sum-exp, (B, H, Sq).
  m.def(
      "attention_with_cache_lse(Tensor query, Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor cache_seqlens, *, "
      "Tensor? key=None, Tensor? value=None, Tensor? block_table=None, float? scale=None, bool is_causal=False, "
      "int[2] window=[-1, -1], float softcap=0., Tensor? sinks=None, str precision=\"highest\") -> (Tensor output, "
      "Tensor logsumexp)");
}
