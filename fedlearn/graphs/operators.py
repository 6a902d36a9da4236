"""The fixed table of operators that a graph may call, with the kinds of their arguments.

The lines are ATen's own schemas, less the parameters that a graph has no say in (devices, layouts, random numbers,
training), with kinds that are narrower than ATen's types. None of the operators reads or writes anything but its
arguments or gives uninitialised memory, and no result's shape depends on values. Those in `DRAWS` draw random numbers
from generators that whoever runs them starts from the group's seed.

Source: https://github.com/pytorch/pytorch/blob/main/aten/src/ATen/native/native_functions.yaml
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from fedlearn.graphs.kinds import ArgumentKind, parse_kind

_LINES = """
abs.default(Tensor self) -> 1
bitwise_not.default(Tensor self) -> 1
ceil.default(Tensor self) -> 1
cos.default(Tensor self) -> 1
erf.default(Tensor self) -> 1
exp.default(Tensor self) -> 1
expm1.default(Tensor self) -> 1
floor.default(Tensor self) -> 1
isnan.default(Tensor self) -> 1
log.default(Tensor self) -> 1
log1p.default(Tensor self) -> 1
log2.default(Tensor self) -> 1
logical_not.default(Tensor self) -> 1
neg.default(Tensor self) -> 1
reciprocal.default(Tensor self) -> 1
round.default(Tensor self) -> 1
rsqrt.default(Tensor self) -> 1
sigmoid.default(Tensor self) -> 1
sign.default(Tensor self) -> 1
sin.default(Tensor self) -> 1
sqrt.default(Tensor self) -> 1
square.default(Tensor self) -> 1
tanh.default(Tensor self) -> 1

celu.default(Tensor self, Number alpha) -> 1
elu.default(Tensor self, Number alpha, Number scale, Number input_scale) -> 1
gelu.default(Tensor self, word(none,tanh) approximate) -> 1
glu.default(Tensor self, Dim dim) -> 1
hardsigmoid.default(Tensor self) -> 1
hardswish.default(Tensor self) -> 1
hardtanh.default(Tensor self, Number min_val, Number max_val) -> 1
leaky_relu.default(Tensor self, Number negative_slope) -> 1
log_sigmoid.default(Tensor self) -> 1
log_softmax.int(Tensor self, Dim dim, Dtype? dtype) -> 1
mish.default(Tensor self) -> 1
prelu.default(Tensor self, Tensor weight) -> 1
relu.default(Tensor self) -> 1
relu6.default(Tensor self) -> 1
selu.default(Tensor self) -> 1
silu.default(Tensor self) -> 1
softmax.int(Tensor self, Dim dim, Dtype? dtype) -> 1
softplus.default(Tensor self, Number beta, Number threshold) -> 1

add.Scalar(Tensor self, Number other, Number alpha) -> 1
add.Tensor(Tensor self, Tensor other, Number alpha) -> 1
addcdiv.default(Tensor self, Tensor tensor1, Tensor tensor2, Number value) -> 1
addcmul.default(Tensor self, Tensor tensor1, Tensor tensor2, Number value) -> 1
bitwise_and.Tensor(Tensor self, Tensor other) -> 1
bitwise_or.Tensor(Tensor self, Tensor other) -> 1
div.Scalar(Tensor self, Number other) -> 1
div.Tensor(Tensor self, Tensor other) -> 1
div.Scalar_mode(Tensor self, Number other, word(floor) rounding_mode) -> 1
div.Tensor_mode(Tensor self, Tensor other, word(floor) rounding_mode) -> 1
eq.Scalar(Tensor self, Number other) -> 1
eq.Tensor(Tensor self, Tensor other) -> 1
floor_divide.default(Tensor self, Tensor other) -> 1
floor_divide.Scalar(Tensor self, Number other) -> 1
ge.Scalar(Tensor self, Number other) -> 1
ge.Tensor(Tensor self, Tensor other) -> 1
gt.Scalar(Tensor self, Number other) -> 1
gt.Tensor(Tensor self, Tensor other) -> 1
le.Scalar(Tensor self, Number other) -> 1
le.Tensor(Tensor self, Tensor other) -> 1
lerp.Scalar(Tensor self, Tensor end, Number weight) -> 1
lerp.Tensor(Tensor self, Tensor end, Tensor weight) -> 1
logical_and.default(Tensor self, Tensor other) -> 1
logical_or.default(Tensor self, Tensor other) -> 1
lt.Scalar(Tensor self, Number other) -> 1
lt.Tensor(Tensor self, Tensor other) -> 1
max.other(Tensor self, Tensor other) -> 1
maximum.default(Tensor self, Tensor other) -> 1
min.other(Tensor self, Tensor other) -> 1
minimum.default(Tensor self, Tensor other) -> 1
mul.Scalar(Tensor self, Number other) -> 1
mul.Tensor(Tensor self, Tensor other) -> 1
ne.Scalar(Tensor self, Number other) -> 1
ne.Tensor(Tensor self, Tensor other) -> 1
pow.Scalar(Number self, Tensor exponent) -> 1
pow.Tensor_Scalar(Tensor self, Number exponent) -> 1
pow.Tensor_Tensor(Tensor self, Tensor exponent) -> 1
remainder.Scalar(Tensor self, Number other) -> 1
remainder.Tensor(Tensor self, Tensor other) -> 1
rsub.Scalar(Tensor self, Number other, Number alpha) -> 1
rsub.Tensor(Tensor self, Tensor other, Number alpha) -> 1
sub.Scalar(Tensor self, Number other, Number alpha) -> 1
sub.Tensor(Tensor self, Tensor other, Number alpha) -> 1

clamp.default(Tensor self, Number? min, Number? max) -> 1
clamp.Tensor(Tensor self, Tensor? min, Tensor? max) -> 1
clamp_max.default(Tensor self, Number max) -> 1
clamp_min.default(Tensor self, Number min) -> 1
masked_fill.Scalar(Tensor self, Tensor mask, Number value) -> 1
masked_fill.Tensor(Tensor self, Tensor mask, Tensor value) -> 1
nan_to_num.default(Tensor self, Float? nan, Float? posinf, Float? neginf) -> 1
where.Scalar(Tensor condition, Number self, Number other) -> 1
where.ScalarOther(Tensor condition, Tensor self, Number other) -> 1
where.ScalarSelf(Tensor condition, Number self, Tensor other) -> 1
where.self(Tensor condition, Tensor self, Tensor other) -> 1

all.default(Tensor self) -> 1
all.dim(Tensor self, Dim dim, Bool keepdim) -> 1
amax.default(Tensor self, Dim[] dim, Bool keepdim) -> 1
amin.default(Tensor self, Dim[] dim, Bool keepdim) -> 1
any.default(Tensor self) -> 1
any.dim(Tensor self, Dim dim, Bool keepdim) -> 1
argmax.default(Tensor self, Dim? dim, Bool keepdim) -> 1
argmin.default(Tensor self, Dim? dim, Bool keepdim) -> 1
argsort.default(Tensor self, Dim dim, Bool descending) -> 1
cumprod.default(Tensor self, Dim dim, Dtype? dtype) -> 1
cumsum.default(Tensor self, Dim dim, Dtype? dtype) -> 1
linalg_vector_norm.default(Tensor self, Number ord, Dim[]? dim, Bool keepdim, Dtype? dtype) -> 1
logsumexp.default(Tensor self, Dim[] dim, Bool keepdim) -> 1
max.default(Tensor self) -> 1
max.dim(Tensor self, Dim dim, Bool keepdim) -> 2
mean.default(Tensor self, Dtype? dtype) -> 1
mean.dim(Tensor self, Dim[]? dim, Bool keepdim, Dtype? dtype) -> 1
min.default(Tensor self) -> 1
min.dim(Tensor self, Dim dim, Bool keepdim) -> 2
prod.default(Tensor self, Dtype? dtype) -> 1
prod.dim_int(Tensor self, Dim dim, Bool keepdim, Dtype? dtype) -> 1
sort.default(Tensor self, Dim dim, Bool descending) -> 2
std.correction(Tensor self, Dim[]? dim, Number? correction, Bool keepdim) -> 1
std.dim(Tensor self, Dim[]? dim, Bool unbiased, Bool keepdim) -> 1
sum.default(Tensor self, Dtype? dtype) -> 1
sum.dim_IntList(Tensor self, Dim[]? dim, Bool keepdim, Dtype? dtype) -> 1
topk.default(Tensor self, Offset k, Dim dim, Bool largest, Bool sorted) -> 2
var.correction(Tensor self, Dim[]? dim, Number? correction, Bool keepdim) -> 1
var.dim(Tensor self, Dim[]? dim, Bool unbiased, Bool keepdim) -> 1

addmm.default(Tensor self, Tensor mat1, Tensor mat2, Number beta, Number alpha) -> 1
baddbmm.default(Tensor self, Tensor batch1, Tensor batch2, Number beta, Number alpha) -> 1
bilinear.default(Tensor input1, Tensor input2, Tensor weight, Tensor? bias) -> 1
bmm.default(Tensor self, Tensor mat2) -> 1
dot.default(Tensor self, Tensor tensor) -> 1
einsum.default(Equation equation, Tensor[] tensors) -> 1
linear.default(Tensor input, Tensor weight, Tensor? bias) -> 1
matmul.default(Tensor self, Tensor other) -> 1
mm.default(Tensor self, Tensor mat2) -> 1
matrix_exp.default(Tensor self) -> 1
mv.default(Tensor self, Tensor vec) -> 1
outer.default(Tensor self, Tensor vec2) -> 1
vdot.default(Tensor self, Tensor other) -> 1

fft_fft.default(Tensor self, Count? n, Dim dim, word(backward,ortho,forward)? norm) -> 1
fft_fft2.default(Tensor self, Count[]? s, Dim[] dim, word(backward,ortho,forward)? norm) -> 1
fft_ifft.default(Tensor self, Count? n, Dim dim, word(backward,ortho,forward)? norm) -> 1
fft_ifft2.default(Tensor self, Count[]? s, Dim[] dim, word(backward,ortho,forward)? norm) -> 1
fft_irfft.default(Tensor self, Count? n, Dim dim, word(backward,ortho,forward)? norm) -> 1
fft_irfft2.default(Tensor self, Count[]? s, Dim[] dim, word(backward,ortho,forward)? norm) -> 1
fft_rfft.default(Tensor self, Count? n, Dim dim, word(backward,ortho,forward)? norm) -> 1
fft_rfft2.default(Tensor self, Count[]? s, Dim[] dim, word(backward,ortho,forward)? norm) -> 1
view_as_complex.default(Tensor self) -> 1
view_as_real.default(Tensor self) -> 1

conv1d.default(Tensor input, Tensor weight, Tensor? bias, Count[] stride, Offset[] padding, Count[] dilation, Count groups) -> 1
conv1d.padding(Tensor input, Tensor weight, Tensor? bias, Count[] stride, word(same,valid) padding, Count[] dilation, Count groups) -> 1
conv2d.default(Tensor input, Tensor weight, Tensor? bias, Count[] stride, Offset[] padding, Count[] dilation, Count groups) -> 1
conv2d.padding(Tensor input, Tensor weight, Tensor? bias, Count[] stride, word(same,valid) padding, Count[] dilation, Count groups) -> 1
conv3d.default(Tensor input, Tensor weight, Tensor? bias, Count[] stride, Offset[] padding, Count[] dilation, Count groups) -> 1
conv_transpose1d.default(Tensor input, Tensor weight, Tensor? bias, Count[] stride, Offset[] padding, Offset[] output_padding, Count groups, Count[] dilation) -> 1
conv_transpose2d.input(Tensor input, Tensor weight, Tensor? bias, Count[] stride, Offset[] padding, Offset[] output_padding, Count groups, Count[] dilation) -> 1
conv_transpose3d.input(Tensor input, Tensor weight, Tensor? bias, Count[] stride, Offset[] padding, Offset[] output_padding, Count groups, Count[] dilation) -> 1
adaptive_avg_pool1d.default(Tensor self, Count[] output_size) -> 1
adaptive_avg_pool2d.default(Tensor self, Count[] output_size) -> 1
adaptive_avg_pool3d.default(Tensor self, Count[] output_size) -> 1
adaptive_max_pool2d.default(Tensor self, Count[] output_size) -> 2
avg_pool1d.default(Tensor self, Count[] kernel_size, Count[] stride, Offset[] padding, Bool ceil_mode, Bool count_include_pad) -> 1
avg_pool2d.default(Tensor self, Count[] kernel_size, Count[] stride, Offset[] padding, Bool ceil_mode, Bool count_include_pad, Count? divisor_override) -> 1
avg_pool3d.default(Tensor self, Count[] kernel_size, Count[] stride, Offset[] padding, Bool ceil_mode, Bool count_include_pad, Count? divisor_override) -> 1
max_pool1d.default(Tensor self, Count[] kernel_size, Count[] stride, Offset[] padding, Count[] dilation, Bool ceil_mode) -> 1
max_pool2d.default(Tensor self, Count[] kernel_size, Count[] stride, Offset[] padding, Count[] dilation, Bool ceil_mode) -> 1
max_pool3d.default(Tensor self, Count[] kernel_size, Count[] stride, Offset[] padding, Count[] dilation, Bool ceil_mode) -> 1
_upsample_bicubic2d_aa.vec(Tensor input, Count[]? output_size, Bool align_corners, Float[]? scale_factors) -> 1
_upsample_bilinear2d_aa.vec(Tensor input, Count[]? output_size, Bool align_corners, Float[]? scale_factors) -> 1
_upsample_nearest_exact1d.vec(Tensor input, Count[]? output_size, Float[]? scale_factors) -> 1
_upsample_nearest_exact2d.vec(Tensor input, Count[]? output_size, Float[]? scale_factors) -> 1
_upsample_nearest_exact3d.vec(Tensor input, Count[]? output_size, Float[]? scale_factors) -> 1
upsample_bicubic2d.vec(Tensor input, Count[]? output_size, Bool align_corners, Float[]? scale_factors) -> 1
upsample_bilinear2d.vec(Tensor input, Count[]? output_size, Bool align_corners, Float[]? scale_factors) -> 1
upsample_linear1d.vec(Tensor input, Count[]? output_size, Bool align_corners, Float[]? scale_factors) -> 1
upsample_nearest1d.vec(Tensor input, Count[]? output_size, Float[]? scale_factors) -> 1
upsample_nearest2d.vec(Tensor input, Count[]? output_size, Float[]? scale_factors) -> 1
upsample_nearest3d.vec(Tensor input, Count[]? output_size, Float[]? scale_factors) -> 1
upsample_trilinear3d.vec(Tensor input, Count[]? output_size, Bool align_corners, Float[]? scale_factors) -> 1

dropout.default(Tensor input, Float p) -> 1
_weight_norm.default(Tensor v, Tensor g, Dim dim) -> 1
batch_norm.default(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, Float eps) -> 1
group_norm.default(Tensor input, Count num_groups, Tensor? weight, Tensor? bias, Float eps) -> 1
instance_norm.default(Tensor input, Tensor? weight, Tensor? bias, Float eps) -> 1
layer_norm.default(Tensor input, Count[] normalized_shape, Tensor? weight, Tensor? bias, Float eps) -> 1
rms_norm.default(Tensor input, Count[] normalized_shape, Tensor? weight, Float? eps) -> 1

embedding.default(Tensor weight, Tensor indices) -> 1
scaled_dot_product_attention.default(Tensor query, Tensor key, Tensor value, Tensor? attn_mask, Bool is_causal, Float? scale, Bool enable_gqa) -> 1
gru.input(Tensor input, Tensor hx, Tensor[] params, Bool has_biases, Count num_layers, Bool bidirectional, Bool batch_first) -> 2
gru_cell.default(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh) -> 1
lstm_cell.default(Tensor input, Tensor[] hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh) -> 2
rnn_relu_cell.default(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh) -> 1
rnn_tanh_cell.default(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih, Tensor? b_hh) -> 1
lstm.input(Tensor input, Tensor[] hx, Tensor[] params, Bool has_biases, Count num_layers, Bool bidirectional, Bool batch_first) -> 3
rnn_relu.input(Tensor input, Tensor hx, Tensor[] params, Bool has_biases, Count num_layers, Bool bidirectional, Bool batch_first) -> 2
rnn_tanh.input(Tensor input, Tensor hx, Tensor[] params, Bool has_biases, Count num_layers, Bool bidirectional, Bool batch_first) -> 2

binary_cross_entropy.default(Tensor self, Tensor target, Tensor? weight, Reduction reduction) -> 1
binary_cross_entropy_with_logits.default(Tensor self, Tensor target, Tensor? weight, Tensor? pos_weight, Reduction reduction) -> 1
cosine_similarity.default(Tensor x1, Tensor x2, Dim dim, Float eps) -> 1
cross_entropy_loss.default(Tensor self, Tensor target, Tensor? weight, Reduction reduction, Int ignore_index, Float label_smoothing) -> 1
huber_loss.default(Tensor self, Tensor target, Reduction reduction, Float delta) -> 1
kl_div.default(Tensor self, Tensor target, Reduction reduction, Bool log_target) -> 1
l1_loss.default(Tensor self, Tensor target, Reduction reduction) -> 1
mse_loss.default(Tensor self, Tensor target, Reduction reduction) -> 1
nll_loss_nd.default(Tensor self, Tensor target, Tensor? weight, Reduction reduction, Int ignore_index) -> 1
smooth_l1_loss.default(Tensor self, Tensor target, Reduction reduction, Float beta) -> 1
triplet_margin_loss.default(Tensor anchor, Tensor positive, Tensor negative, Float margin, Float p, Float eps, Bool swap, Reduction reduction) -> 1

cat.default(Tensor[] tensors, Dim dim) -> 1
constant_pad_nd.default(Tensor self, Int[] pad, Number value) -> 1
diagonal.default(Tensor self, Int offset, Dim dim1, Dim dim2) -> 1
diff.default(Tensor self, Count n, Dim dim, Tensor? prepend, Tensor? append) -> 1
expand.default(Tensor self, Extent[] size) -> 1
flip.default(Tensor self, Dim[] dims) -> 1
gather.default(Tensor self, Dim dim, Tensor index) -> 1
im2col.default(Tensor self, Count[] kernel_size, Count[] dilation, Offset[] padding, Count[] stride) -> 1
index.Tensor(Tensor self, Tensor?[] indices) -> 1
index_add.default(Tensor self, Dim dim, Tensor index, Tensor source, Number alpha) -> 1
index_select.default(Tensor self, Dim dim, Tensor index) -> 1
one_hot.default(Tensor self, Count num_classes) -> 1
pad.default(Tensor self, Int[] pad, word(constant,reflect,replicate,circular) mode, Float? value) -> 1
permute.default(Tensor self, Dim[] dims) -> 1
pixel_shuffle.default(Tensor self, Count upscale_factor) -> 1
repeat.default(Tensor self, Offset[] repeats) -> 1
repeat_interleave.self_int(Tensor self, Offset repeats, Dim? dim) -> 1
reshape.default(Tensor self, Extent[] shape) -> 1
roll.default(Tensor self, Int[] shifts, Dim[] dims) -> 1
scatter.src(Tensor self, Dim dim, Tensor index, Tensor src) -> 1
scatter.value(Tensor self, Dim dim, Tensor index, Number value) -> 1
scatter_add.default(Tensor self, Dim dim, Tensor index, Tensor src) -> 1
select.int(Tensor self, Dim dim, Int index) -> 1
select_scatter.default(Tensor self, Tensor src, Dim dim, Int index) -> 1
slice.Tensor(Tensor self, Dim dim, Int? start, Int? end, Count step) -> 1
slice_scatter.default(Tensor self, Tensor src, Dim dim, Int? start, Int? end, Count step) -> 1
split_with_sizes.default(Tensor self, Offset[] split_sizes, Dim dim) -> split_sizes
squeeze.default(Tensor self) -> 1
squeeze.dim(Tensor self, Dim dim) -> 1
squeeze.dims(Tensor self, Dim[] dim) -> 1
stack.default(Tensor[] tensors, Dim dim) -> 1
t.default(Tensor self) -> 1
transpose.int(Tensor self, Dim dim0, Dim dim1) -> 1
tril.default(Tensor self, Int diagonal) -> 1
triu.default(Tensor self, Int diagonal) -> 1
unfold.default(Tensor self, Dim dimension, Count size, Count step) -> 1
unsqueeze.default(Tensor self, Dim dim) -> 1

arange.default(Place end, Dtype? dtype) -> 1
arange.start(Place start, Place end, Dtype? dtype) -> 1
arange.start_step(Place start, Place end, Place step, Dtype? dtype) -> 1
eye.default(Offset n, Dtype? dtype) -> 1
full.default(Offset[] size, Number fill_value, Dtype? dtype) -> 1
linspace.default(Place start, Place end, Offset steps, Dtype? dtype) -> 1
ones.default(Offset[] size, Dtype? dtype) -> 1
rand.default(Offset[] size, Dtype? dtype) -> 1
randint.low(Int low, Int high, Offset[] size, Dtype? dtype) -> 1
randn.default(Offset[] size, Dtype? dtype) -> 1
scalar_tensor.default(Number s, Dtype? dtype) -> 1
zeros.default(Offset[] size, Dtype? dtype) -> 1
full_like.default(Tensor self, Number fill_value, Dtype? dtype) -> 1
new_full.default(Tensor self, Offset[] size, Number fill_value, Dtype? dtype) -> 1
new_ones.default(Tensor self, Offset[] size, Dtype? dtype) -> 1
new_zeros.default(Tensor self, Offset[] size, Dtype? dtype) -> 1
ones_like.default(Tensor self, Dtype? dtype) -> 1
zeros_like.default(Tensor self, Dtype? dtype) -> 1

contiguous.default(Tensor self) -> 1
copy.default(Tensor self, Tensor src) -> 1
detach.default(Tensor self) -> 1
fill.Scalar(Tensor self, Number value) -> 1
fill.Tensor(Tensor self, Tensor value) -> 1
to.dtype(Tensor self, Dtype dtype) -> 1
type_as.default(Tensor self, Tensor other) -> 1
"""  # noqa: E501


class Parameter(Struct, frozen=True):
    """One parameter of an operator."""

    name: str
    kind: ArgumentKind


class Operator(Struct, frozen=True):
    """One operator that graphs may call."""

    name: str
    parameters: tuple[Parameter, ...]
    n_results: int
    """Number of results; negative if it is the length of one of the arguments."""
    counted_by: int = -1
    """Position of the argument whose length is the number of results; -1 if there is none."""

    @property
    def is_source(self) -> bool:
        """Whether the operator reads no value, so that whoever runs it must name the device of its result."""
        return not any(parameter.kind.base == "Tensor" for parameter in self.parameters)


_LINE = re.compile(r"(\w+\.\w+)\((.*)\) -> (\w+)")
_PARAMETER = re.compile(r"(word\([\w,]+\)\??|[\w?\[\]]+) (\w+)(?:, )?")


def _parse(line: str) -> Operator:
    matched = _LINE.fullmatch(line)
    if matched is None:
        raise ValueError(f"operator: expected name(kind name, ...) -> results, got {line!r}")
    name, inside, results = matched.groups()
    parameters = tuple(Parameter(name, parse_kind(kind)) for kind, name in _PARAMETER.findall(inside))
    if results.isdigit():
        return Operator(name, parameters, int(results))
    return Operator(name, parameters, -1, [parameter.name for parameter in parameters].index(results))


OPERATORS: Mapping[str, Operator] = MappingProxyType(
    {operator.name: operator for operator in map(_parse, filter(None, _LINES.splitlines()))}
)
"""All operators, by ATen's name with its overload."""

DRAWS = frozenset({"dropout.default", "rand.default", "randint.low", "randn.default"})
"""Names of the operators that draw random numbers."""
