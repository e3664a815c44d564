//! Which of the traces that begin here are recorded.

/// The bits of a trace's id that decide: the last 56, which W3C Trace Context wants to be random.
const BITS: u32 = 56;

/// A part of all traces. A trace's id decides, so that all who use the same ratio decide alike. (It is the decision of
/// OpenTelemetry's consistent probability samplers.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleRatio {
    /// The least value of the deciding bits of a trace that is recorded.
    least: u64,
}

impl SampleRatio {
    /// The part, from 0 (none) to 1 (all).
    pub fn of(part: f64) -> Self {
        let all = 1_u64 << BITS;
        Self { least: ((1.0 - part.clamp(0.0, 1.0)) * all as f64).round() as u64 }
    }

    /// Whether a trace is recorded.
    pub(crate) fn takes(self, trace: u128) -> bool {
        let random = trace & ((1 << BITS) - 1);
        random >= u128::from(self.least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_bits_of_the_trace_decide() {
        let last = |bits: u64| (u128::from(u64::MAX) << 64) | u128::from(bits);
        let (half, top) = (1_u64 << (BITS - 1), (1_u64 << BITS) - 1);
        for (part, lowest, below_half, from_half, highest) in [
            (0.0, false, false, false, false),
            (0.25, false, false, false, true),
            (0.5, false, false, true, true),
            (1.0, true, true, true, true),
        ] {
            let ratio = SampleRatio::of(part);
            let taken = [0, half - 1, half, top].map(|bits| ratio.takes(last(bits)));
            assert_eq!(taken, [lowest, below_half, from_half, highest], "{part}");
        }
    }
}
