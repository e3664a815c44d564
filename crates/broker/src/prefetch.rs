//! The prefetch of a consumer, which is its backpressure: how many messages it may have, fewer when they are large.

/// How many messages may be handed out and not yet acknowledged. RabbitMQ has no limit in bytes. So there may be few
/// while their sizes are unknown, and more while the last ones were small.
#[derive(Clone, Copy, Debug)]
pub struct Prefetch {
    few: u16,
    usual: u16,
    most: u16,
    bytes: usize,
    longest: usize,
}

/// The prefetch while sizes are unknown: a message may have any size that the broker takes.
const FEW: u16 = 4;
/// How many of the last bodies count.
const KNOWN_BODIES: u32 = 64;

impl Prefetch {
    /// A fixed number of messages, whatever their size; at least 1.
    #[must_use]
    pub const fn of(messages: u16) -> Self {
        let messages = if messages == 0 { 1 } else { messages };
        Self { few: messages, usual: messages, most: messages, bytes: usize::MAX, longest: usize::MAX }
    }

    /// At most so many messages and about so many bytes of bodies. Bodies are seldom longer than `longest`; of longer
    /// ones, 4 at a time.
    #[must_use]
    pub fn within(messages: u16, bytes: usize, longest: usize) -> Self {
        let (most, usual) = (messages.max(1), u16::try_from(bytes / longest.max(1)).unwrap_or(u16::MAX));
        let usual = usual.clamp(1, most);
        Self { few: usual.min(FEW), usual, most, bytes, longest }
    }

    /// How many messages may be handed out at any usual size.
    #[must_use]
    pub const fn usual(self) -> u16 {
        self.usual
    }

    /// How many messages may be handed out at any size.
    pub(crate) const fn few(self) -> u16 {
        self.few
    }

    /// The most messages that may be handed out.
    pub(crate) const fn most(self) -> u16 {
        self.most
    }
}

/// The sizes of the last bodies.
pub(crate) struct Sizes {
    prefetch: Prefetch,
    /// Their mean in bytes. Each further body has a weight of 1/64.
    mean: f64,
    /// How many bodies came, up to [`KNOWN_BODIES`].
    count: u32,
    /// How many messages may be handed out besides the few.
    further: u16,
    /// How many messages must come before the number may grow. Those of the larger number may not be acknowledged yet.
    pause: u32,
}

#[expect(clippy::cast_precision_loss, reason = "sizes of bodies")]
impl Sizes {
    /// Starts without any known size.
    pub(crate) const fn new(prefetch: Prefetch) -> Self {
        Self { prefetch, mean: 0.0, count: 0, further: 0, pause: 0 }
    }

    /// Whether any body came.
    pub(crate) const fn any(&self) -> bool {
        self.count > 0
    }

    /// Counts a body and returns how many further messages may be handed out, the first of these that fits the mean:
    ///
    /// 1. all, or half of them if that is far above the usual number: once they fit into half of the bytes, and then
    ///    until they exceed the bytes;
    /// 2. the usual number, unless the mean exceeds 1.5 times `longest`;
    /// 3. none.
    ///
    /// After a decrease, the number grows only once the messages handed out before are through.
    pub(crate) fn count(&mut self, body: usize) -> u16 {
        self.count = (self.count + 1).min(KNOWN_BODIES);
        self.mean += (body as f64 - self.mean) / f64::from(self.count);
        let Prefetch { few, usual, most, bytes, longest } = self.prefetch;
        let half = most / 2;
        let has_room_for = |messages: u16| {
            let limit = bytes as f64 / if self.further >= messages - few { 1.0 } else { 2.0 };
            self.mean * f64::from(messages) <= limit
        };
        let further = match () {
            // Waits for all of the few, and for no more: a queue that refuses what they publish may hold them up.
            () if self.count < u32::from(few) => 0,
            () if has_room_for(most) => most - few,
            () if half / 2 > usual && has_room_for(half) => half - few,
            () if self.mean <= 1.5 * longest as f64 => usual - few,
            () => 0,
        };
        self.pause = match further < self.further {
            true => u32::from(most) + u32::from(usual),
            false => self.pause.saturating_sub(1),
        };
        if self.pause == 0 || further < self.further {
            self.further = further;
        }
        self.further
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    fn ours() -> Sizes {
        Sizes::new(Prefetch::within(512, 32 * MIB, MIB / 4))
    }

    #[test]
    fn there_are_few_of_what_nothing_is_known() {
        let prefetch = Prefetch::within(512, 32 * MIB, MIB / 4);
        assert_eq!((prefetch.few(), prefetch.usual, prefetch.most()), (4, 128, 512));
        assert_eq!(Prefetch::within(512, MIB, 2 * MIB).few(), 1);
        assert_eq!(Prefetch::of(7).few(), 7);
    }

    #[test]
    fn further_ones_come_after_a_few_small_ones_and_a_large_one_among_them_changes_nothing() {
        let mut sizes = ours();
        assert!((1..FEW).all(|_| sizes.count(600) == 0), "nothing is known yet");
        assert_eq!(sizes.count(600), 508);
        assert!((0..1000).all(|number| sizes.count(if number % 20 == 0 { MIB / 4 } else { 600 }) == 508));
        assert!((0..30).any(|_| sizes.count(MIB / 4) == 124), "large ones");
        assert!((0..1000).all(|_| sizes.count(40 * 1024) == 124), "neither small nor large: as it was");
        assert!((0..1000).any(|_| sizes.count(20 * 1024) == 508));
        assert!((0..1000).all(|_| sizes.count(40 * 1024) == 508));
    }

    #[test]
    fn there_is_half_of_those_that_are_too_large_for_all() {
        let mut sizes = Sizes::new(Prefetch::within(1024, 32 * MIB, MIB / 4));
        assert!((0..100).any(|_| sizes.count(600) == 1020));
        assert!((0..1000).all(|_| sizes.count(30 * 1024) == 1020), "all have room");
        assert!((0..1000).any(|_| sizes.count(50 * 1024) == 508));
        assert!((0..1000).all(|_| sizes.count(50 * 1024) == 508), "half of them have");
        assert!((0..1000).any(|_| sizes.count(MIB / 4) == 124));
        assert!((0..10_000).any(|_| sizes.count(20 * 1024) == 508));
        assert!((0..10_000).any(|_| sizes.count(600) == 1020));
    }

    #[test]
    fn of_those_that_are_larger_than_any_that_is_usable_there_are_few() {
        let mut sizes = ours();
        assert!((0..1000).all(|_| sizes.count(16 * MIB) == 0));
        let mut sizes = ours();
        assert!((0..1000).any(|_| sizes.count(600) == 508));
        assert_eq!((0..3).map(|_| sizes.count(16 * MIB)).last(), Some(0));
    }

    #[test]
    fn sizes_that_change_all_the_time_do_not_add_up() {
        let mut sizes = ours();
        assert!((0..1000).any(|_| sizes.count(600) == 508));
        assert!((0..1000).any(|_| sizes.count(MIB / 4) == 124));
        assert!((0..639).all(|_| sizes.count(600) == 124), "what was handed out may be unacknowledged");
        assert_eq!((0..2).map(|_| sizes.count(600)).last(), Some(508));
    }

    #[test]
    fn a_number_that_is_the_same_for_every_size_never_grows() {
        let mut sizes = Sizes::new(Prefetch::of(128));
        assert!((0..1000).all(|_| sizes.count(1) == 0));
    }
}
