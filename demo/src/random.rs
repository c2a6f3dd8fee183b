//! Pseudo-random numbers that are the same in each run, so that a picture taken again shows the same.

/// The generator `SplitMix64`.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) const fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Below `end`, which is above 0.
    pub(crate) const fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    /// Both ends are possible.
    pub(crate) const fn between(&mut self, (low, high): (u64, u64)) -> u64 {
        low + self.below(high - low + 1)
    }

    /// Like [`Self::between`], but small numbers are more frequent.
    pub(crate) const fn mostly_low(&mut self, (low, high): (u64, u64)) -> u64 {
        const ONE: u64 = 1_000;
        let share = self.below(ONE + 1) * self.below(ONE + 1) / ONE;
        low + (high - low) * share / ONE
    }

    /// True in `thousandths` of a thousand cases.
    pub(crate) const fn happens(&mut self, thousandths: u64) -> bool {
        self.below(1_000) < thousandths
    }

    pub(crate) fn one_of<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        let last = items.len() as u64;
        &items[usize::try_from(self.below(last)).unwrap_or(0)]
    }

    /// One of the items, with a probability in proportion to its weight.
    pub(crate) fn weighted<'a, T>(&mut self, items: &'a [(T, u64)]) -> &'a T {
        let mut left = self.below(items.iter().map(|(_, weight)| weight).sum());
        for (item, weight) in items {
            if left < *weight {
                return item;
            }
            left -= weight;
        }
        &items[0].0
    }

    pub(crate) const fn bytes(&mut self) -> [u8; 10] {
        let (first, second) = (self.number().to_le_bytes(), self.number().to_le_bytes());
        let mut bytes = [0; 10];
        let mut at = 0;
        while at < 10 {
            bytes[at] = if at < 8 { first[at] } else { second[at - 8] };
            at += 1;
        }
        bytes
    }
}
