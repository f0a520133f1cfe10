// The gated activation of SwiGLU: out = silu(gate) * up, with silu(v) = v / (1 + exp(-v)), in f32.
//
// Shapes: x [rows, 2 * width], a row being the gate and then the up part; out [rows, width]; both contiguous. Any rows
// and width.
//
// One invocation takes one element. Workgroups are spread over the grid's x and y axes, because one axis ends at 65,535
// of them: the declared grid covers every element at least once, and an invocation beyond the last element leaves.
//
// Indices are u32: a storage binding is below 2^31 bytes, so an element's index is below 2^29.
//
// exp only ever sees a number that is not positive, so no finite input overflows: large gates give themselves or 0.
// Non-finite input: +inf gives +inf, -inf and NaN give NaN, as IEEE arithmetic does. WGSL allows a compiler to assume
// that no such value occurs and then promises no particular one; the drivers that this was tested on follow IEEE.

struct Params {
    rows: u32,
    width: u32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;

const LANES: u32 = 256u;

fn silu(value: f32) -> f32 {
    let small = exp(-abs(value));
    let sigmoid = select(small, 1.0, value >= 0.0) / (1.0 + small);
    return value * sigmoid;
}

@compute @workgroup_size(LANES)
fn silu_and_mul(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let element = (group.y * groups.x + group.x) * LANES + lane;
    if (element >= params.rows * params.width) {
        return;
    }
    let row = element / params.width;
    let gate = row * 2u * params.width + element % params.width;
    out[element] = silu(x[gate]) * x[gate + params.width];
}
