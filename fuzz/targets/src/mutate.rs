//! Random changes of inputs.

/// A generator of inputs, the same ones for the same seed.
pub(crate) struct Mutator {
    state: u64,
    words: &'static [&'static str],
    longest: usize,
}

/// Numbers that parsers trip over.
const NUMBERS: [u64; 12] =
    [0, 1, 2, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, 0x7fff_ffff_ffff_ffff, u64::MAX];

impl Mutator {
    pub(crate) fn new(seed: u64, words: &'static [&'static str], longest: usize) -> Self {
        Self { state: seed ^ 0x9e37_79b9_7f4a_7c15, words, longest }
    }

    /// xorshift64*: small, and good enough to pick places.
    fn random(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.random() >> 33).unwrap_or(0) % bound.max(1)
    }

    /// An input made of kept ones.
    pub(crate) fn next(&mut self, kept: &[Vec<u8>]) -> Vec<u8> {
        let mut input = kept[self.below(kept.len())].clone();
        for _ in 0..=self.below(6) {
            self.change(&mut input, kept);
        }
        input.truncate(self.longest);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, kept: &[Vec<u8>]) {
        let at = self.below(input.len());
        let length = self.below(16).min(input.len() - at.min(input.len()));
        match self.below(10) {
            0 if !input.is_empty() => input[at] ^= 1 << self.below(8),
            1 if !input.is_empty() => input[at] = self.random().to_le_bytes()[0],
            2 => {
                let number = NUMBERS[self.below(NUMBERS.len())].to_le_bytes();
                let width = [1, 2, 4, 8][self.below(4)];
                for (place, byte) in input.iter_mut().skip(at).zip(&number[..width]) {
                    *place = *byte;
                }
            }
            3 => drop(input.drain(at..at + length)),
            4 => {
                let piece = input[at..at + length].to_vec();
                let times = 1 + self.below(4);
                input.splice(at..at, piece.repeat(times));
            }
            5 => {
                let word = self.words.get(self.below(self.words.len())).copied().unwrap_or_default();
                input.splice(at..at, word.bytes());
            }
            6 => {
                let other = &kept[self.below(kept.len())];
                let from = self.below(other.len());
                let piece = other[from..].iter().take(1 + self.below(64)).copied().collect::<Vec<_>>();
                let end = (at + piece.len()).min(input.len());
                input.splice(at..end, piece);
            }
            7 => input.truncate(at),
            8 => {
                let text = NUMBERS[self.below(NUMBERS.len())].to_string();
                input.splice(at..at + length, text.bytes());
            }
            _ => input.insert(at.min(input.len()), self.random().to_le_bytes()[0]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Mutator;

    #[test]
    fn a_seed_makes_the_same_inputs_and_none_is_too_long() {
        let kept = vec![b"one seed".to_vec(), Vec::new(), vec![7; 40]];
        let run = |seed| {
            let mut mutator = Mutator::new(seed, &["word"], 64);
            (0..5000).map(|_| mutator.next(&kept)).collect::<Vec<_>>()
        };
        let first = run(1);
        assert_eq!(first, run(1));
        assert_ne!(first, run(2));
        assert!(first.iter().all(|input| input.len() <= 64));
        assert!(first.iter().collect::<std::collections::HashSet<_>>().len() > 2000);
    }
}
