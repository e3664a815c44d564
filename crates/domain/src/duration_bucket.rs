//! Durations as a histogram: few numbers, from which percentiles are estimated.

use std::time::Duration;

/// A range of durations: bucket n holds those below 2^n milliseconds and not below half of that. The last bucket holds
/// all longer ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DurationBucket(u8);

impl DurationBucket {
    /// How many there are. An attempt takes some 10 s at most; the last one begins at 16 s.
    pub const COUNT: usize = 16;

    /// The bucket of a duration.
    pub fn of(duration: Duration) -> Self {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let bits = u64::BITS - millis.leading_zeros();
        Self(u8::try_from(bits).unwrap_or(u8::MAX).min(Self::LAST))
    }

    const LAST: u8 = Self::COUNT as u8 - 1;

    /// Its number, from 0.
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// Counts of durations by bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durations([u64; DurationBucket::COUNT]);

impl Durations {
    /// Adds durations of the bucket with this number. A number above the last one counts as the last.
    pub fn add(&mut self, number: u8, count: u64) {
        let bucket = &mut self.0[usize::from(number.min(DurationBucket::LAST))];
        *bucket = bucket.saturating_add(count);
    }

    /// The duration below which this part (from 0 to 1) of all lies, estimated within its bucket. `None` when there are
    /// none.
    #[expect(clippy::cast_precision_loss, reason = "an estimate")]
    pub fn percentile(&self, part: f64) -> Option<Duration> {
        let all: u64 = self.0.iter().sum();
        let (wanted, mut below) = (part * all as f64, 0.0);
        for (number, count) in self.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = *count as f64;
            if below + count >= wanted {
                let (from, to) = bounds(number);
                return Some(Duration::from_secs_f64((from + (to - from) * (wanted - below) / count) / 1_000.0));
            }
            below += count;
        }
        None
    }
}

/// The ends of a bucket, in milliseconds.
fn bounds(number: usize) -> (f64, f64) {
    let end = f64::from(1_u32 << number.min(usize::from(DurationBucket::LAST)));
    (if number == 0 { 0.0 } else { end / 2.0 }, end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_duration_has_its_bucket() {
        for (micros, bucket) in [
            (0, 0),
            (999, 0),
            (1_000, 1),
            (1_999, 1),
            (2_000, 2),
            (3_999, 2),
            (4_000, 3),
            (10_000_000, 14),
            (16_384_000, 15),
            (u64::MAX, 15),
        ] {
            assert_eq!(DurationBucket::of(Duration::from_micros(micros)).number(), bucket, "{micros} us");
        }
    }

    #[test]
    fn a_number_of_a_later_version_counts_as_the_longest() {
        let mut durations = Durations::default();
        durations.add(200, 1);
        assert!(durations.percentile(0.5).unwrap() >= Duration::from_secs(16));
    }

    #[test]
    fn a_percentile_is_the_part_of_its_bucket_that_lies_below_it() {
        let mut durations = Durations::default();
        assert_eq!(durations.percentile(0.5), None);
        durations.add(0, 2); // below 1 ms
        durations.add(3, 2); // from 4 to 8 ms
        durations.add(5, 4); // from 16 to 32 ms
        for (part, micros) in
            [(0.0, 0), (0.125, 500), (0.25, 1_000), (0.375, 6_000), (0.5, 8_000), (0.75, 24_000), (1.0, 32_000)]
        {
            assert_eq!(durations.percentile(part), Some(Duration::from_micros(micros)), "{part}");
        }
    }
}
