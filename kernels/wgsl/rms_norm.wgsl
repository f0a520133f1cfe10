// RMS normalisation of each row: out = x / sqrt(mean(x^2) + eps) * weight, in f32.
//
// Shapes: x and out [rows, width], weight [width], all contiguous. Any rows and width; no subgroups are needed.
//
// One workgroup takes one row. Rows are spread over the grid's x and y axes, because one axis ends at 65,535 workgroups:
// the declared grid covers every row at least once, and a workgroup beyond the last row leaves.
//
// Indices are u32: a storage binding is below 2^31 bytes, so an element's index is below 2^29.
//
// Non-finite input: a row that holds a NaN or an infinity has a mean that is NaN or infinite, and the row comes out as
// IEEE arithmetic gives it (NaN; or 0 for the finite elements and NaN for the infinite ones). So does a row whose sum of
// squares exceeds f32. WGSL allows a compiler to assume that neither occurs and then promises no particular value; the
// drivers that this was tested on follow IEEE.

struct Params {
    rows: u32,
    width: u32,
    eps: f32,
}

@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read> weight: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(0) @binding(3) var<uniform> params: Params;

const LANES: u32 = 256u;

var<workgroup> sums: array<f32, LANES>;

@compute @workgroup_size(LANES)
fn rms_norm(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group.y * groups.x + group.x;
    // The same for the whole workgroup, so that the barriers below are met by all of it or by none.
    if (row >= params.rows) {
        return;
    }
    let first = row * params.width;

    var sum = 0.0;
    for (var column = lane; column < params.width; column += LANES) {
        let value = x[first + column];
        sum += value * value;
    }
    sums[lane] = sum;
    workgroupBarrier();

    // A tree: each step adds the upper half of the partial sums to the lower half.
    for (var half = LANES / 2u; half > 0u; half /= 2u) {
        if (lane < half) {
            sums[lane] += sums[lane + half];
        }
        workgroupBarrier();
    }

    // By division and square root, which are more exact than inverseSqrt.
    let scale = 1.0 / sqrt(sums[0] / f32(params.width) + params.eps);
    for (var column = lane; column < params.width; column += LANES) {
        out[first + column] = x[first + column] * scale * weight[column];
    }
}
