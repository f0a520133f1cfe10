//! The arguments of one call, by position and name.

#![expect(unsafe_code, reason = "reads C structures that the host passes")]

use core::fmt;

use kernelhub_abi::{DLTensor, TVMFFIAny, type_index};

use super::error::{Failed, Kind, fail};
use super::tensor::{ElementType, IndexType, Slot, Tensor};

/// The type index of tvm-ffi's own tensor object, which Python passes: a header, and then a `DLTensor`.
const TENSOR_OBJECT: i32 = 70;
/// Bytes of the header of tvm-ffi's objects.
const OBJECT_HEADER: usize = 24;

/// The arguments of one call.
#[derive(Debug)]
pub(crate) struct Args<'a> {
    function: &'static str,
    names: &'static [&'static str],
    values: &'a [TVMFFIAny],
}

/// A type index in words.
struct TypeName(i32);

impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.0 {
            type_index::NONE => "None",
            type_index::INT => "Int",
            type_index::BOOL => "Bool",
            type_index::FLOAT => "Float",
            type_index::DL_TENSOR_PTR => "Tensor (DLTensor*)",
            type_index::RAW_STR => "RawStr",
            other => return write!(f, "type index {other}"),
        };
        f.write_str(name)
    }
}

impl Args<'_> {
    /// Takes the arguments of a call of `function`, whose parameters are `names`.
    ///
    /// # Safety
    /// `args` is null or points to `count` values that outlive what is returned.
    pub(crate) unsafe fn new(
        function: &'static str,
        names: &'static [&'static str],
        args: *const TVMFFIAny,
        count: i32,
    ) -> Result<Self, Failed> {
        let expected = names.len();
        if usize::try_from(count) != Ok(expected) {
            return Err(fail(Kind::Type, format_args!("{function}: expected {expected} arguments, got {count}")));
        }
        if args.is_null() {
            return Err(fail(Kind::Type, format_args!("{function}: the argument array is null")));
        }
        if !args.is_aligned() {
            return Err(fail(Kind::Type, format_args!("{function}: the argument array is not aligned to 8 bytes")));
        }
        // SAFETY: not null, aligned, and `count` values by the caller's contract.
        let values = unsafe { core::slice::from_raw_parts(args, expected) };
        Ok(Self { function, names, values })
    }

    fn wrong_type(&self, index: usize, expected: &str) -> Failed {
        let (function, name, actual) = (self.function, self.names[index], TypeName(self.values[index].type_index));
        fail(Kind::Type, format_args!("{function}: argument `{name}`: expected {expected}, got {actual}"))
    }

    /// The first `N` arguments, which are tensors, checked as far as each alone can be. They are described in `slots`,
    /// in place: what a call costs is mostly the moving about of descriptions.
    #[inline]
    pub(crate) fn tensors<'t, const N: usize>(&self, slots: &'t mut [Slot; N]) -> Result<[&'t Tensor; N], Failed> {
        for (index, slot) in slots.iter_mut().enumerate() {
            self.tensor(index, slot)?;
        }
        // SAFETY: each slot was written above.
        Ok(slots.each_ref().map(|slot| unsafe { slot.assume_init_ref() }))
    }

    /// The tensor of positions or lengths at `index`, checked as far as it alone can be.
    pub(crate) fn index_tensor(&self, index: usize) -> Result<Tensor<IndexType>, Failed> {
        let mut slot = Tensor::EMPTY;
        self.tensor(index, &mut slot).copied()
    }

    /// The tensor at `index`, described in `slot`, in place, and checked as far as it alone can be.
    pub(crate) fn tensor<'t, D: ElementType>(
        &self,
        index: usize,
        slot: &'t mut Slot<D>,
    ) -> Result<&'t Tensor<D>, Failed> {
        let value = &self.values[index];
        let header = match value.type_index {
            type_index::DL_TENSOR_PTR => 0,
            TENSOR_OBJECT => OBJECT_HEADER,
            _ => return Err(self.wrong_type(index, "Tensor (DLTensor*)")),
        };
        // SAFETY: the type index says that this member is the one set.
        let value = unsafe { value.payload.v_ptr };
        let pointer = if value.is_null() { value.cast() } else { value.wrapping_byte_add(header).cast::<DLTensor>() };
        let (function, name) = (self.function, self.names[index]);
        if pointer.is_null() || !pointer.is_aligned() {
            return Err(fail(
                Kind::Value,
                format_args!("{function}: argument `{name}`: expected a DLTensor, got the address {pointer:p}"),
            ));
        }
        // SAFETY: aligned, not null, and a DLTensor that lives through the call by the calling convention.
        let raw = unsafe { &*pointer };
        // SAFETY: its shape and strides are what they say, by the same convention.
        unsafe { Tensor::read(slot, function, name, raw) }
    }

    /// Whether there is nothing at `index`.
    pub(crate) fn is_none(&self, index: usize) -> bool {
        self.values[index].type_index == type_index::NONE
    }

    /// The tensor at `index`, described in `slot`, if there is one; None says that there is not.
    pub(crate) fn optional_tensor<'t>(&self, index: usize, slot: &'t mut Slot) -> Result<Option<&'t Tensor>, Failed> {
        if self.is_none(index) {
            return Ok(None);
        }
        self.tensor(index, slot).map(Some)
    }

    /// The number at `index`: a Float, or an Int, which is converted.
    pub(crate) fn float(&self, index: usize) -> Result<f64, Failed> {
        let value = &self.values[index];
        match value.type_index {
            // SAFETY: the type index says that this member is the one set.
            type_index::FLOAT => Ok(unsafe { value.payload.v_float64 }),
            // SAFETY: the type index says that this member is the one set.
            type_index::INT => Ok(unsafe { value.payload.v_int64 } as f64),
            _ => Err(self.wrong_type(index, "Float or Int")),
        }
    }

    /// The integer at `index`: an Int.
    pub(crate) fn int(&self, index: usize) -> Result<i64, Failed> {
        let value = &self.values[index];
        match value.type_index {
            // SAFETY: the type index says that this member is the one set.
            type_index::INT => Ok(unsafe { value.payload.v_int64 }),
            _ => Err(self.wrong_type(index, "Int")),
        }
    }

    /// The number at `index`, which must be finite and at least 0.
    pub(crate) fn not_negative(&self, index: usize) -> Result<f64, Failed> {
        let value = self.float(index)?;
        if value.is_finite() && value >= 0.0 {
            return Ok(value);
        }
        Err(self.invalid(index, format_args!("expected a finite number of at least 0, got {value}")))
    }

    /// The number at `index`, which must be finite, rounded to f32, in which kernels compute.
    #[expect(clippy::cast_possible_truncation, reason = "rounds to f32 on purpose")]
    pub(crate) fn finite_f32(&self, index: usize) -> Result<f32, Failed> {
        let value = self.float(index)?;
        let rounded = value as f32;
        if rounded.is_finite() {
            return Ok(rounded);
        }
        Err(self.invalid(index, format_args!("expected a finite number in the range of f32, got {value}")))
    }

    /// The flag at `index`: a Bool, or an Int, where any value but 0 is true.
    pub(crate) fn flag(&self, index: usize) -> Result<bool, Failed> {
        let value = &self.values[index];
        match value.type_index {
            // SAFETY: the type index says that this member is the one set.
            type_index::BOOL | type_index::INT => Ok(unsafe { value.payload.v_int64 } != 0),
            _ => Err(self.wrong_type(index, "Bool or Int")),
        }
    }

    /// An error about the value of the argument at `index`.
    pub(crate) fn invalid(&self, index: usize, text: fmt::Arguments<'_>) -> Failed {
        let (function, name) = (self.function, self.names[index]);
        fail(Kind::Value, format_args!("{function}: argument `{name}`: {text}"))
    }
}
