//! The prefetch of a consumer, which is its backpressure: how many messages it may have, fewer when they are large.

/// The number of messages that may be unacknowledged. RabbitMQ has no limit in bytes. So there may be few while their
/// sizes are unknown, and more while the last ones were small.
#[derive(Clone, Copy, Debug)]
pub struct Prefetch {
    /// The number that the first consumer receives, of any size.
    pub(crate) few: u16,
    /// The maximum of messages that may be unacknowledged.
    pub(crate) most: u16,
}

/// The prefetch while sizes are unknown: a message may have any size that the broker takes.
const UNKNOWN_SIZES_PREFETCH: u16 = 4;
/// Bodies whose mean is larger are large.
const LARGE_BODY_BYTES: f64 = 128.0 * 1024.0;
/// The number of the last bodies that count.
const MIN_KNOWN_BODIES: u32 = 64;

impl Prefetch {
    /// A fixed number of messages, whatever their size; at least 1.
    pub const fn of(messages: u16) -> Self {
        let messages = if messages == 0 { 1 } else { messages };
        Self { few: messages, most: messages }
    }

    /// Up to `messages` of up to 128 KiB each, and 4 of larger ones.
    pub const fn of_small(messages: u16) -> Self {
        Self { few: if messages < UNKNOWN_SIZES_PREFETCH { messages } else { UNKNOWN_SIZES_PREFETCH }, most: messages }
    }

    /// The same maximum, and one message for the first consumer.
    pub(crate) const fn one_first(self) -> Self {
        Self { few: 1, ..self }
    }

    /// The number that the second consumer receives while they are small.
    pub(crate) const fn further(self) -> u16 {
        self.most - self.few
    }
}

/// The sizes of the last bodies.
#[derive(Default)]
pub(crate) struct Sizes {
    /// Their mean in bytes. Each further body has a weight of 1/64.
    mean: f64,
    /// The number of bodies that came, up to [`MIN_KNOWN_BODIES`].
    count: u32,
    /// The number of bodies that must come before the second consumer opens again: those of the former one may be
    /// unacknowledged.
    pause: u32,
}

#[expect(clippy::cast_precision_loss, reason = "sizes of bodies")]
impl Sizes {
    /// Whether any body came.
    pub(crate) const fn any(&self) -> bool {
        self.count > 0
    }

    /// Counts a body. Returns whether the second consumer may be open: all of the few have come, and their mean is
    /// small. It waits for no more than these: a queue that refuses what comes of them may hold them up.
    pub(crate) fn count(&mut self, body: usize, prefetch: Prefetch) -> bool {
        self.count = (self.count + 1).min(MIN_KNOWN_BODIES);
        self.mean += (body as f64 - self.mean) / f64::from(self.count);
        self.pause = match self.mean > LARGE_BODY_BYTES {
            true => prefetch.most.into(),
            false => self.pause.saturating_sub(1),
        };
        prefetch.further() > 0 && self.count >= prefetch.few.into() && self.pause == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;
    const PREFETCH: Prefetch = Prefetch::of_small(96);

    #[test]
    fn further_ones_come_after_a_few_small_ones_and_a_large_one_among_them_changes_nothing() {
        let mut sizes = Sizes::default();
        assert!((1..UNKNOWN_SIZES_PREFETCH).all(|_| !sizes.count(600, PREFETCH)), "nothing is known yet");
        assert!((0..100).all(|_| sizes.count(600, PREFETCH)));
        assert!((0..1000).all(|number| sizes.count(if number % 20 == 0 { 2 * MIB } else { 600 }, PREFETCH)));
        assert!((0..1000).all(|number| sizes.count(if number % 8 == 0 { MIB / 2 } else { 600 }, PREFETCH)));
    }

    #[test]
    fn while_they_are_large_there_are_few_and_then_until_those_handed_out_before_are_through() {
        let mut sizes = Sizes::default();
        assert!((0..1000).all(|_| !sizes.count(16 * MIB, PREFETCH)));
        let back = (0..1000).position(|_| sizes.count(600, PREFETCH)).unwrap();
        assert!((96..500).contains(&back), "{back}");
        let last = (0..1000).position(|_| !sizes.count(16 * MIB, PREFETCH)).unwrap();
        assert!(last < 10, "{last} giants were welcome");
    }

    #[test]
    fn a_number_that_is_the_same_for_every_size_never_grows() {
        let mut sizes = Sizes::default();
        assert!((0..1000).all(|_| !sizes.count(1, Prefetch::of(128))));
        assert_eq!((Prefetch::of(0).few, Prefetch::of_small(2).few, PREFETCH.few), (1, 2, 4));
    }
}
