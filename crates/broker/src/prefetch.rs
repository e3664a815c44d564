//! How many messages a consumer may have: fewer when they are large.

/// How many messages may be handed out and not yet acknowledged. AMQP's own limit in bytes is one that RabbitMQ does not
/// know: so a part of them may be had at any time, and the others while bodies are small.
#[derive(Clone, Copy, Debug)]
pub struct Prefetch {
    always: u16,
    most: u16,
    bytes: usize,
}

impl Prefetch {
    /// So many, whatever their size; at least 1.
    #[must_use]
    pub const fn of(messages: u16) -> Self {
        let messages = if messages == 0 { 1 } else { messages };
        Self { always: messages, most: messages, bytes: usize::MAX }
    }

    /// At most so many, and about so many bytes of bodies, which are seldom longer than `longest`.
    #[must_use]
    pub fn within(messages: u16, bytes: usize, longest: usize) -> Self {
        let (most, always) = (messages.max(1), u16::try_from(bytes / longest.max(1)).unwrap_or(u16::MAX));
        Self { always: always.clamp(1, most), most, bytes }
    }

    /// At any time.
    pub(crate) const fn always(self) -> u16 {
        self.always
    }

    /// All of them.
    pub(crate) const fn most(self) -> u16 {
        self.most
    }

    /// Those that may be had while bodies are small.
    pub(crate) const fn further(self) -> u16 {
        self.most - self.always
    }
}

/// What bodies are like, by those that came last.
pub(crate) struct Sizes {
    prefetch: Prefetch,
    /// A mean in which each further body has a weight of 1/64, in bytes.
    mean: f64,
    small: bool,
    /// Messages to come before there may be further ones again: those of last time may not be acknowledged yet.
    pause: u32,
}

#[expect(clippy::cast_precision_loss, reason = "sizes of bodies")]
impl Sizes {
    /// As large as they may be, until it is known better.
    pub(crate) fn new(prefetch: Prefetch) -> Self {
        Self { prefetch, mean: prefetch.bytes as f64 / f64::from(prefetch.always), small: false, pause: 0 }
    }

    /// Takes note of a body; whether there may be further messages. They may once all of them would come to half of the
    /// bytes, until they would come to more than all; and not again before those of last time are through.
    pub(crate) fn count(&mut self, body: usize) -> bool {
        self.mean += (body as f64 - self.mean) / 64.0;
        let all = self.mean * f64::from(self.prefetch.most);
        let bytes = self.prefetch.bytes as f64;
        let limit = if self.small { bytes } else { bytes / 2.0 };
        let small = self.prefetch.further() > 0 && all <= limit && self.pause == 0;
        self.pause = match self.small && !small {
            true => u32::from(self.prefetch.most) + u32::from(self.prefetch.always),
            false => self.pause.saturating_sub(1),
        };
        self.small = small;
        small
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    #[test]
    fn of_the_longest_so_many_are_handed_out_as_the_bytes_hold() {
        let prefetch = Prefetch::within(512, 32 * MIB, MIB / 4);
        assert_eq!((prefetch.always(), prefetch.most(), prefetch.further()), (128, 512, 384));
        assert_eq!(Prefetch::within(64, 32 * MIB, MIB / 4).further(), 0);
        assert_eq!(Prefetch::within(512, MIB, 2 * MIB).always(), 1);
        assert_eq!(Prefetch::of(7).further(), 0);
    }

    #[test]
    fn further_ones_come_while_bodies_are_small_and_a_large_one_among_them_changes_nothing() {
        let mut sizes = Sizes::new(Prefetch::within(512, 32 * MIB, MIB / 4));
        assert!(!sizes.count(600), "nothing is known yet");
        assert!((0..1000).any(|_| sizes.count(600)));
        assert!((0..1000).all(|number| sizes.count(if number % 20 == 0 { MIB / 4 } else { 600 })));
        assert!((0..30).any(|_| !sizes.count(MIB / 4)), "large ones");
        assert!((0..1000).all(|_| !sizes.count(40 * 1024)), "neither small nor large: as it was");
        assert!((0..1000).any(|_| sizes.count(20 * 1024)));
        assert!((0..1000).all(|_| sizes.count(40 * 1024)));
    }

    #[test]
    fn sizes_that_change_all_the_time_do_not_add_up() {
        let mut sizes = Sizes::new(Prefetch::within(512, 32 * MIB, MIB / 4));
        assert!((0..1000).any(|_| sizes.count(600)));
        assert!((0..1000).any(|_| !sizes.count(MIB / 4)));
        assert!((0..640).all(|_| !sizes.count(600)), "what was handed out may be unacknowledged");
        assert!(sizes.count(600));
    }

    #[test]
    fn a_number_that_is_the_same_for_every_size_never_grows() {
        let mut sizes = Sizes::new(Prefetch::of(128));
        assert!((0..1000).all(|_| !sizes.count(1)));
    }
}
