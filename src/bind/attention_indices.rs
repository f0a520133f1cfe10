//! The integers of packed and paged attention: checked here, so that no kernel is sent outside its memory.

use super::tensor::View;
use super::{BindError, LayerMeta};
use crate::dtype::DType;

impl LayerMeta {
    /// `view` is a row-major `i32` tensor.
    fn check_i32(&self, argument: &'static str, view: &View) -> Result<(), BindError> {
        self.check_dtype(argument, view, DType::I32)?;
        if view.is_row_major() {
            return Ok(());
        }
        let reason = format!("has strides {:?}; expected a row-major tensor", view.strides());
        Err(self.layout_fault(argument, reason))
    }

    #[cold]
    fn index_fault(&self, argument: &'static str, (position, actual): (usize, i64), expected: String) -> BindError {
        BindError::Index { kernel: self.identity.to_string(), argument, position, actual, expected }
    }

    /// `view` `[batch + 1]` ascends from 0 and stays within `total` rows; where `whole`, it ends there. Gives the
    /// length of the longest sequence.
    pub(super) fn check_starts(
        &self,
        argument: &'static str,
        view: &View,
        total: i64,
        whole: bool,
    ) -> Result<i64, BindError> {
        self.check_i32(argument, view)?;
        let &[count] = view.shape() else {
            return Err(self.shape_fault(argument, view, "[batch + 1]".to_owned()));
        };
        if count == 0 {
            return Err(self.shape_fault(argument, view, "[batch + 1], of which the first is 0".to_owned()));
        }
        let (mut last, mut longest) = (0, 0);
        let wrong = view.indices(|position, start| {
            let fits = if position == 0 { start == 0 } else { (last..=total).contains(&start) };
            if !fits {
                return Some((position, start));
            }
            longest = longest.max(start - last);
            last = start;
            None
        });
        match wrong {
            Some(wrong @ (0, _)) => Err(self.index_fault(argument, wrong, "0".to_owned())),
            Some(wrong) => {
                let expected =
                    format!("at least {last}, the number before it, and at most {total}, the number of rows");
                Err(self.index_fault(argument, wrong, expected))
            }
            None if whole && last != total => {
                // At least one: `count` was checked.
                let position = usize::try_from(count - 1).unwrap_or_default();
                let expected = format!("{total}, so that each row belongs to a sequence");
                Err(self.index_fault(argument, (position, last), expected))
            }
            None => Ok(longest),
        }
    }

    /// `lengths` `[batch]` fit the rows of `table` `[batch, max_blocks]`, whose entries in use are ids below `blocks`.
    pub(super) fn check_block_table(
        &self,
        (table_argument, table): (&'static str, &View),
        (lengths_argument, lengths): (&'static str, &View),
        batch: i64,
        [blocks, block_size]: [i64; 2],
    ) -> Result<(), BindError> {
        self.check_i32(table_argument, table)?;
        self.check_i32(lengths_argument, lengths)?;
        let &[_, max_blocks] = table.shape() else {
            return Err(self.shape_fault(table_argument, table, "[batch, max_blocks]".to_owned()));
        };
        self.check_shape(table_argument, table, &[batch, max_blocks], "[batch, max_blocks]")?;
        self.check_shape(lengths_argument, lengths, &[batch], "[batch]")?;
        let capacity = max_blocks.saturating_mul(block_size);
        let outside = |position, length| (!(0..=capacity).contains(&length)).then_some((position, length));
        if let Some(wrong) = lengths.indices(outside) {
            let expected = format!("0 to {capacity}, which is {max_blocks} blocks of {block_size}");
            return Err(self.index_fault(lengths_argument, wrong, expected));
        }
        if max_blocks == 0 || block_size == 0 {
            return Ok(());
        }
        // Row by row, beside the length of its sequence.
        let width = usize::try_from(max_blocks).unwrap_or(usize::MAX);
        let (mut used, mut row) = (0, usize::MAX);
        let wrong = table.indices(|position, id| {
            if position / width != row {
                row = position / width;
                // Fits: at most `max_blocks * block_size`.
                let length = lengths.index_at(row);
                used = length / block_size + i64::from(length % block_size > 0);
            }
            let in_use = i64::try_from(position % width).is_ok_and(|at| at < used);
            (in_use && !(0..blocks).contains(&id)).then_some((position, id))
        });
        match wrong {
            Some(wrong) => Err(self.index_fault(table_argument, wrong, format!("0 <= id < {blocks}, the blocks"))),
            None => Ok(()),
        }
    }
}
