//! Keys and values of many sequences, in blocks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use candle_core::{DType, Device, Result, Tensor};

use super::LayerError;

const LAYER: &str = "paged key-value cache";
/// Each cache has a number, so that a batch of one is refused by another.
static CACHES: AtomicU64 = AtomicU64::new(0);

/// A sequence of a [`PagedKvCache`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId(u64);

/// The keys and values of all decoder layers, for many sequences that grow at their own pace.
///
/// The memory is allocated once, in blocks of `block_size` positions that are the same for every layer. A sequence has
/// as many blocks as its length needs, wherever they are, so that nothing is copied or kept free for its growth; a
/// sequence that ends gives its blocks back.
///
/// A forward reserves the new positions of its sequences once ([`reserve`](Self::reserve)), writes each layer's keys
/// and values there ([`write`](Self::write)), and attends by a [`PagedAttention`](super::PagedAttention). Not `Clone`,
/// for two caches would write into one memory.
#[derive(Debug)]
pub struct PagedKvCache {
    number: u64,
    /// Keys and values of each layer, `[blocks, block_size, kv_heads, head_dim]`.
    layers: Vec<[Tensor; 2]>,
    block_size: usize,
    /// The last one is the next that is taken.
    free: Vec<i32>,
    sequences: BTreeMap<SequenceId, Sequence>,
    next: u64,
}

#[derive(Debug, Default)]
struct Sequence {
    blocks: Vec<i32>,
    len: usize,
}

/// The sequences of one forward, with room for its new positions.
#[derive(Debug, Clone)]
pub struct PagedBatch {
    cache: u64,
    sequences: Vec<SequenceId>,
    q_len: usize,
    block_size: usize,
    /// `[batch, max_blocks]`; -1 behind a sequence's last block.
    table: Vec<i32>,
    /// Keys of each sequence, the new positions included.
    lengths: Vec<i32>,
}

impl PagedKvCache {
    /// An empty cache of `blocks` blocks of `block_size` positions, for `layers` decoder layers.
    ///
    /// # Errors
    /// A [`LayerError`] when `block_size` is 0 or the positions are more than a kernel counts; candle's error when the
    /// device cannot hold it.
    pub fn new(
        layers: usize,
        [blocks, block_size]: [usize; 2],
        [kv_heads, head_dim]: [usize; 2],
        dtype: DType,
        device: &Device,
    ) -> Result<Self> {
        let positions = blocks.checked_mul(block_size).and_then(|positions| i32::try_from(positions).ok());
        let Some(blocks_i32) = i32::try_from(blocks).ok().filter(|_| block_size > 0 && positions.is_some()) else {
            let expected = format!("blocks of at least 1 position, and at most {} positions", i32::MAX);
            let actual = format!("{blocks} blocks of {block_size}");
            return Err(LayerError::Number { layer: LAYER, name: "size", expected, actual }.into());
        };
        let tensor = || Tensor::zeros((blocks, block_size, kv_heads, head_dim), dtype, device);
        let layers = (0..layers).map(|_| Ok([tensor()?, tensor()?])).collect::<Result<_>>()?;
        let number = CACHES.fetch_add(1, Ordering::Relaxed);
        let free = (0..blocks_i32).rev().collect();
        Ok(Self { number, layers, block_size, free, sequences: BTreeMap::new(), next: 0 })
    }

    /// Begins a sequence without a position.
    pub fn begin(&mut self) -> SequenceId {
        let id = SequenceId(self.next);
        self.next += 1;
        self.sequences.insert(id, Sequence::default());
        id
    }

    /// Ends a sequence and gives its blocks back.
    ///
    /// # Errors
    /// [`LayerError::NoSequence`] when it has ended or is another cache's.
    pub fn end(&mut self, sequence: SequenceId) -> Result<()> {
        let ended = self.sequences.remove(&sequence).ok_or(LayerError::NoSequence { sequence: sequence.0 })?;
        self.free.extend(ended.blocks.into_iter().rev());
        Ok(())
    }

    /// Positions that a sequence holds.
    ///
    /// # Errors
    /// [`LayerError::NoSequence`] when it has ended or is another cache's.
    pub fn len_of(&self, sequence: SequenceId) -> Result<usize> {
        Ok(self.sequences.get(&sequence).ok_or(LayerError::NoSequence { sequence: sequence.0 })?.len)
    }

    /// Blocks that no sequence has.
    #[must_use]
    pub fn free_blocks(&self) -> usize {
        self.free.len()
    }

    /// Positions of a block.
    #[must_use]
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Makes room for `added` new positions at the end of each of the sequences. They are written by
    /// [`write`](Self::write), once for each layer.
    ///
    /// # Errors
    /// A [`LayerError`], with nothing reserved, for a sequence that the cache does not hold or that stands twice, and
    /// [`LayerError::CacheFull`] when there are not enough free blocks.
    pub fn reserve(&mut self, sequences: &[SequenceId], added: usize) -> Result<PagedBatch> {
        let mut wanted = 0_usize;
        for (at, id) in sequences.iter().enumerate() {
            let sequence = self.sequences.get(id).ok_or(LayerError::NoSequence { sequence: id.0 })?;
            if sequences[..at].contains(id) {
                let reason = format!("sequence {} stands twice in one batch", id.0);
                return Err(LayerError::Sequences { layer: LAYER, reason }.into());
            }
            let len = sequence.len.saturating_add(added);
            let missing = len.div_ceil(self.block_size).saturating_sub(sequence.blocks.len());
            wanted = wanted.saturating_add(missing);
        }
        if wanted > self.free.len() {
            let held: usize = self.sequences.values().map(|sequence| sequence.blocks.len()).sum();
            let maximum = (held + self.free.len()) * self.block_size;
            let requested = held.saturating_add(wanted).saturating_mul(self.block_size);
            return Err(LayerError::CacheFull { requested, maximum }.into());
        }
        for id in sequences {
            let Some(sequence) = self.sequences.get_mut(id) else { continue };
            sequence.len += added;
            let missing = sequence.len.div_ceil(self.block_size) - sequence.blocks.len();
            sequence.blocks.extend(self.free.drain(self.free.len() - missing..).rev());
        }
        let of_batch = || sequences.iter().filter_map(|id| self.sequences.get(id));
        let max_blocks = of_batch().map(|sequence| sequence.blocks.len()).max().unwrap_or(0);
        let mut table = Vec::with_capacity(sequences.len() * max_blocks);
        for sequence in of_batch() {
            table.extend_from_slice(&sequence.blocks);
            table.extend(std::iter::repeat_n(-1, max_blocks - sequence.blocks.len()));
        }
        // Fits: the positions of the cache were counted when it was made.
        let lengths = of_batch().map(|sequence| i32::try_from(sequence.len).unwrap_or(i32::MAX)).collect();
        let sequences = sequences.to_vec();
        Ok(PagedBatch { cache: self.number, sequences, q_len: added, block_size: self.block_size, table, lengths })
    }

    /// Writes one layer's keys and values of the positions that `batch` reserved, each
    /// `[batch, kv_heads, added, head_dim]` of any strides.
    ///
    /// # Errors
    /// A [`LayerError`], with nothing written, when the batch is another cache's, there is no such layer, a shape or an
    /// element type is not the cache's, or a tensor tracks gradients.
    pub fn write(&mut self, layer: usize, batch: &PagedBatch, keys: &Tensor, values: &Tensor) -> Result<()> {
        let caches = self.layer(layer, batch)?;
        let (_, _, kv_heads, head_dim) = caches[0].dims4()?;
        let expected = [batch.len(), kv_heads, batch.q_len, head_dim];
        let named = [("keys", keys), ("values", values)];
        for (tensor, new) in named {
            if *new.dims() != expected {
                let (expected, actual) = (format!("{expected:?} of the batch"), new.dims().to_vec());
                return Err(LayerError::Shape { layer: LAYER, tensor, expected, actual }.into());
            }
            if new.track_op() {
                return Err(LayerError::CacheGradient { tensor }.into());
            }
            if new.dtype() != caches[0].dtype() {
                let (expected, actual) =
                    (format!("{:?} like the cache", caches[0].dtype()), format!("{:?}", new.dtype()));
                return Err(LayerError::DType { layer: LAYER, tensor, expected, actual }.into());
            }
        }
        if batch.q_len == 0 {
            return Ok(());
        }
        for ((_, new), cache) in named.into_iter().zip(caches) {
            let rows = cache.flatten(0, 1)?;
            for sequence in 0..batch.len() {
                let new = new.get(sequence)?.transpose(0, 1)?.contiguous()?;
                let mut written = 0;
                while written < batch.q_len {
                    let position = batch.len_of(sequence) - batch.q_len + written;
                    // To the end of the block, whose rows are neighbours.
                    let count = (self.block_size - position % self.block_size).min(batch.q_len - written);
                    rows.slice_set(&new.narrow(0, written, count)?.contiguous()?, 0, batch.row(sequence, position))?;
                    written += count;
                }
            }
        }
        Ok(())
    }

    /// One layer's keys and values, for a batch of this cache.
    pub(super) fn layer(&self, layer: usize, batch: &PagedBatch) -> Result<[&Tensor; 2]> {
        if batch.cache != self.number {
            let reason = "the batch was reserved in another cache".to_owned();
            return Err(LayerError::Sequences { layer: LAYER, reason }.into());
        }
        // The blocks of a sequence that has ended may be another's by now.
        if let Some(ended) = batch.sequences.iter().find(|id| !self.sequences.contains_key(id)) {
            return Err(LayerError::NoSequence { sequence: ended.0 }.into());
        }
        let Some([keys, values]) = self.layers.get(layer) else {
            let expected = format!("below the {} layers of the cache", self.layers.len());
            return Err(LayerError::Number { layer: LAYER, name: "layer", expected, actual: layer.to_string() }.into());
        };
        Ok([keys, values])
    }
}

impl PagedBatch {
    /// Number of sequences.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether there is no sequence.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// New positions of each sequence.
    #[must_use]
    pub fn q_len(&self) -> usize {
        self.q_len
    }

    /// Positions of a sequence of the batch, by its place in it; the new ones included.
    ///
    /// # Panics
    /// When there is no such place.
    #[must_use]
    pub fn len_of(&self, sequence: usize) -> usize {
        self.lengths[sequence].unsigned_abs() as usize
    }

    /// The blocks of each sequence, `[batch, max_blocks]`; -1 behind a sequence's last one.
    pub(super) fn table(&self) -> &[i32] {
        &self.table
    }

    /// Positions of each sequence, `[batch]`.
    pub(super) fn lengths(&self) -> &[i32] {
        &self.lengths
    }

    /// The row of a position among all blocks' rows.
    fn row(&self, sequence: usize, position: usize) -> usize {
        let width = self.table.len() / self.lengths.len();
        let block = self.table[sequence * width + position / self.block_size].unsigned_abs() as usize;
        block * self.block_size + position % self.block_size
    }

    /// The rows of all positions of a sequence.
    pub(super) fn rows_of(&self, sequence: usize) -> Vec<u32> {
        let row = |position| u32::try_from(self.row(sequence, position)).unwrap_or(u32::MAX);
        (0..self.len_of(sequence)).map(row).collect()
    }
}
