//! The libraries that ship, in the place of the code that these tests are linked with: `KERNELHUB_CPU_PACKS` names the
//! folder that holds one folder for each pack. `cargo xtask memcheck` runs the tests on them in valgrind.
//!
//! A shipped library chooses its instruction level itself, so that tests run once there, at the CPU's best level.

#![expect(unsafe_code, reason = "opens libraries and calls their functions")]

use std::collections::HashMap;
use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use kernelhub_abi::{LastErrorFn, PackedFn, ParallelForFn, SetParallelForFn, symbols};
use libloading::{Library, Symbol};

/// A function, and what the library that exports it has beside it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Export {
    pub(crate) function: PackedFn,
    pub(crate) last_error: LastErrorFn,
    set_parallel_for: SetParallelForFn,
}

macro_rules! exports {
    ($($name:ident),* $(,)?) => { [$((stringify!($name), kernelhub_cpu::$name as PackedFn)),*] };
}

/// Every function that the crate exports, by its name: what a test calls stands here, or the test fails.
const LINKED: [(&str, PackedFn); 29] = exports![
    add_rms_norm,
    apply_rotary,
    apply_rotary_pair,
    cross_entropy,
    cross_entropy_backward,
    embedding,
    fatrelu_and_mul,
    flash_attn,
    flash_attn_options,
    flash_attn_paged,
    flash_attn_varlen,
    gelu,
    gelu_and_mul,
    gelu_fast,
    gelu_new,
    gelu_quick,
    gelu_tanh,
    gelu_tanh_and_mul,
    layer_norm,
    linear,
    mul_and_silu,
    rms_norm,
    rms_norm_backward,
    rms_norm_with_offset,
    silu,
    silu_and_mul,
    silu_and_mul_backward,
    silu_gated_linear,
    softmax,
];

/// Whether the tests run on libraries that ship.
pub(crate) fn shipped() -> bool {
    folder().is_some()
}

fn folder() -> Option<PathBuf> {
    std::env::var_os("KERNELHUB_CPU_PACKS").map(PathBuf::from)
}

/// The export that a test means by a function it is linked with: that function, or the shipped one of its name.
pub(crate) fn export(function: PackedFn) -> Export {
    // In both cases, so that a function that is missing there shows in every run.
    let linked = LINKED.iter().find(|(_, linked)| std::ptr::fn_addr_eq(*linked, function));
    let (name, _) = linked.expect("a function that stands in `LINKED`");
    if !shipped() {
        return Export {
            function,
            last_error: kernelhub_cpu::kernelhub_last_error,
            set_parallel_for: kernelhub_cpu::kernelhub_set_parallel_for,
        };
    }
    exports()[name]
}

/// Hands the pool to the code under test, or takes it back.
///
/// # Safety
/// That of [`SetParallelForFn`].
pub(crate) unsafe fn set_parallel_for(run: Option<ParallelForFn>, ctx: *mut c_void) {
    if shipped() {
        for export in exports().values() {
            // SAFETY: the same contract.
            unsafe { (export.set_parallel_for)(run, ctx) };
        }
    } else {
        // SAFETY: the same contract.
        unsafe { kernelhub_cpu::kernelhub_set_parallel_for(run, ctx) };
    }
}

/// The functions of all shipped libraries.
fn exports() -> &'static HashMap<&'static str, Export> {
    static EXPORTS: OnceLock<HashMap<&'static str, Export>> = OnceLock::new();
    EXPORTS.get_or_init(|| {
        let libraries: Vec<&'static Library> =
            libraries(&folder().expect("KERNELHUB_CPU_PACKS")).iter().map(|path| open(path)).collect();
        LINKED
            .iter()
            .map(|&(name, _)| {
                let symbol = format!("{}{name}", symbols::FUNCTION_PREFIX);
                let (library, function) = libraries
                    .iter()
                    .find_map(|library| Some((library, symbol_of::<PackedFn>(library, &symbol)?)))
                    .unwrap_or_else(|| panic!("no shipped library exports {symbol}"));
                let own = "each library has the handshake";
                let last_error = symbol_of(library, symbols::LAST_ERROR).expect(own);
                let set_parallel_for = symbol_of(library, symbols::SET_PARALLEL_FOR).expect(own);
                (name, Export { function, last_error, set_parallel_for })
            })
            .collect()
    })
}

/// `<folder>/<pack>/tvm-ffi*/<library>`.
fn libraries(folder: &Path) -> Vec<PathBuf> {
    let inside = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        entries.map(|entry| entry.expect("an entry").path()).collect()
    };
    let builds = inside(folder).into_iter().flat_map(|pack| inside(&pack));
    let native =
        builds.filter(|build| build.file_name().is_some_and(|name| name.to_string_lossy().starts_with("tvm-ffi")));
    let library = |file: &PathBuf| file.extension().is_some_and(|end| end == std::env::consts::DLL_EXTENSION);
    native.flat_map(|build| inside(&build)).filter(library).collect()
}

/// Never closed, as in a host.
fn open(path: &Path) -> &'static Library {
    // SAFETY: our own libraries, which run nothing when they are loaded.
    let library = unsafe { Library::new(path) }.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    Box::leak(Box::new(library))
}

/// `T` is the type of that symbol.
fn symbol_of<T: Copy>(library: &'static Library, name: &str) -> Option<T> {
    // SAFETY: the types of docs/pack-abi.md.
    let symbol: Symbol<'_, T> = unsafe { library.get(name) }.ok()?;
    Some(*symbol)
}

/// That memcheck sees the memory of these tests to the byte: an array that is told to have one element more than it
/// has. `cargo xtask memcheck` demands that this run fails.
#[test]
#[ignore = "reads behind its input, for memcheck to find"]
fn memcheck_sees_one_element_too_many() {
    use crate::support::{Arg, DTYPES, Tensor, call};
    for dtype in DTYPES {
        let (x, out) = (Tensor::random(dtype, &[37], 1), Tensor::new(dtype, &[38]));
        let longer = x.view(&[38], &[1], 0);
        call(kernelhub_cpu::silu, &[Arg::T(&out), Arg::T(&longer)]).expect("silu");
    }
}
