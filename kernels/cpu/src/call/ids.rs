//! Tensors of ids: tokens and classes.

#![expect(unsafe_code, reason = "reads ids by pointer")]
#![expect(clippy::multiple_unsafe_ops_per_block, reason = "an access and the pointer arithmetic to it share a note")]

use core::fmt;

use kernelhub_abi::{DLDataType, dtype_code};

use super::error::Failed;
use super::rows::RowMap;
use super::tensor::{ElementType, List, Tensor};

/// The element types of ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdType {
    /// 32 bits without a sign.
    U32,
    /// 64 bits with a sign.
    I64,
}

impl ElementType for IdType {
    const WORDS: &'static str = "u32 or i64";

    fn from_dl(dtype: DLDataType) -> Option<Self> {
        match (dtype.code, dtype.bits, dtype.lanes) {
            (dtype_code::UINT, 32, 1) => Some(Self::U32),
            (dtype_code::INT, 64, 1) => Some(Self::I64),
            _ => None,
        }
    }

    fn size(self) -> usize {
        match self {
            Self::U32 => 4,
            Self::I64 => 8,
        }
    }
}

impl fmt::Display for IdType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::U32 => "u32",
            Self::I64 => "i64",
        })
    }
}

/// Ids to be read by offset.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ids {
    /// Of [`IdType::U32`].
    U32(*const u32),
    /// Of [`IdType::I64`].
    I64(*const i64),
}

impl Ids {
    /// The id at `offset` elements from the first one.
    ///
    /// # Safety
    /// The offset is that of one of the tensor's elements.
    #[inline]
    pub(crate) unsafe fn get(self, offset: isize) -> i64 {
        match self {
            // SAFETY: inside the checked tensor by the caller's contract; initialised, as an input, and aligned.
            Self::U32(data) => i64::from(unsafe { data.offset(offset).read() }),
            // SAFETY: likewise.
            Self::I64(data) => unsafe { data.offset(offset).read() },
        }
    }
}

impl Tensor<IdType> {
    /// The ids, to be read by offset.
    pub(crate) fn ids(&self) -> Ids {
        match self.dtype {
            IdType::U32 => Ids::U32(self.data()),
            IdType::I64 => Ids::I64(self.data()),
        }
    }

    /// Checks that every id is below `limit`, which is the extent `axis`, and not negative; or that it is `ignored`.
    /// The error names the first that is not, and where it stands.
    pub(crate) fn expect_ids(&self, limit: usize, axis: &str, ignored: Option<i64>) -> Result<(), Failed> {
        if self.is_empty() {
            return Ok(());
        }
        let rows = RowMap::from_axes(self.shape(), [self.strides()]);
        let (ids, mut cursor) = (self.ids(), rows.cursor(0));
        for place in 0..self.len() {
            // SAFETY: the cursor stays inside the tensor.
            let id = unsafe { ids.get(cursor.offsets[0]) };
            let inside = usize::try_from(id).is_ok_and(|id| id < limit);
            if !inside && ignored != Some(id) {
                return Err(self.wrong_id(place, id, limit, axis, ignored));
            }
            cursor.advance();
        }
        Ok(())
    }

    #[cold]
    fn wrong_id(&self, place: usize, id: i64, limit: usize, axis: &str, ignored: Option<i64>) -> Failed {
        let (mut index, mut rest) = ([0; super::MAX_RANK], place);
        for (position, &extent) in index.iter_mut().zip(self.shape()).rev() {
            (*position, rest) = (rest % extent, rest / extent);
        }
        let index = List(&index[..self.shape().len()]);
        match ignored {
            None => self.invalid(format_args!("expected ids within 0..{limit} ({axis}), got {id} at index {index}")),
            Some(ignored) => self.invalid(format_args!(
                "expected ids within 0..{limit} ({axis}) or ignore_index {ignored}, got {id} at index {index}"
            )),
        }
    }
}
