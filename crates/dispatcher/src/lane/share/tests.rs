use std::{collections::VecDeque, pin::Pin, task::Poll};

use proptest::prelude::*;

use super::*;

type Waiting = Pin<Box<dyn Future<Output = Share<u8>>>>;

#[derive(Clone, Copy, Debug)]
enum Step {
    Ask { key: u8, amount: u32 },
    GiveBack(usize),
    GiveUp(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (0..3_u8, 1..7_u32).prop_map(|(key, amount)| Step::Ask { key, amount }),
        2 => any::<usize>().prop_map(Step::GiveBack),
        1 => any::<usize>().prop_map(Step::GiveUp),
    ];
    prop::collection::vec(step, 0..80)
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    key: u8,
    amount: u32,
}

#[derive(Default)]
struct Model {
    held: Vec<(Asked, Share<u8>)>,
    waiting: VecDeque<(Asked, Waiting)>,
}

impl Model {
    /// Polls everything that waits. Checks that the requests of one key are granted in their order.
    fn poll(&mut self) -> Result<(), TestCaseError> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let (mut still, mut blocked) = (VecDeque::new(), Vec::new());
        for (asked, mut waiting) in std::mem::take(&mut self.waiting) {
            match waiting.as_mut().poll(&mut context) {
                Poll::Ready(share) => {
                    prop_assert!(!blocked.contains(&asked.key), "{asked:?} overtook another of its key");
                    self.held.push((asked, share));
                }
                Poll::Pending => {
                    blocked.push(asked.key);
                    still.push_back((asked, waiting));
                }
            }
        }
        self.waiting = still;
        Ok(())
    }

    fn held_of(&self, key: u8, limit: u32) -> u32 {
        self.held.iter().filter(|(asked, _)| asked.key == key).map(|(asked, _)| asked.amount.min(limit)).sum()
    }
}

proptest! {
    #[test]
    fn nobody_holds_more_than_a_share_waiters_go_in_order_and_everything_is_given_back(
        limit in 1..6_u32, steps in steps()
    ) {
        let shares = Shares::new(limit);
        let mut model = Model::default();
        for step in steps {
            match step {
                Step::Ask { key, amount } => {
                    let shares = Arc::clone(&shares);
                    let waiting: Waiting = Box::pin(async move { shares.acquire(key, amount).await });
                    model.waiting.push_back((Asked { key, amount }, waiting));
                }
                Step::GiveBack(which) if !model.held.is_empty() => {
                    model.held.swap_remove(which % model.held.len());
                }
                Step::GiveUp(which) if !model.waiting.is_empty() => {
                    model.waiting.remove(which % model.waiting.len());
                }
                _ => {}
            }
            model.poll()?;
            for key in 0..3 {
                let held = model.held_of(key, limit);
                prop_assert!(held <= limit, "{held} of {limit} are held");
                if let Some((first, _)) = model.waiting.iter().find(|(asked, _)| asked.key == key) {
                    prop_assert!(held + first.amount.min(limit) > limit, "{first:?} waits for what is free");
                }
            }
        }
        model.held.clear();
        model.waiting.clear();
        prop_assert!(shares.keys.lock().is_empty(), "a key that nobody uses is forgotten");
    }
}

#[test]
fn a_part_is_rounded_down_but_never_to_nothing() {
    assert_eq!(
        (
            fraction_of(1024, 0.125),
            fraction_of(256, 0.25),
            fraction_of(10, 0.125),
            fraction_of(3, 0.125),
            fraction_of(5, 1.0)
        ),
        (128, 64, 1, 1, 5)
    );
}
