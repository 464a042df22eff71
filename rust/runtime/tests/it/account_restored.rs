// SPDX-License-Identifier: Apache-2.0
//! A task that has lost a row which it was given to go on with says so.

use std::collections::VecDeque;

use crate::support::chain::Script;
use crate::support::{LOST_ROW, ManualClock, Numbers, Scripted, World, config, echo};
use sparkawait_core::element::StreamElement;
use sparkawait_core::operator::Snapshot;
use sparkawait_runtime::{
    CarryCodec, ChainedOperator, Driver, Feeder, Mailbox, OperatorChain, Patience, Restored, Turn,
};

impl CarryCodec for Numbers {
    type Saved = Vec<u32>;

    fn save(
        &mut self,
        snapshot: Snapshot<u32, u32, &'static str>,
        inputs: &VecDeque<Vec<u32>>,
    ) -> Result<Vec<u32>, String> {
        let held = snapshot.into_iter().filter_map(|element| match element {
            StreamElement::Record(record) => Some(record.record.value),
            StreamElement::Watermark(_) => None,
        });
        Ok(held.chain(inputs.iter().flatten().copied()).collect())
    }

    fn rows_saved(saved: &Vec<u32>) -> usize {
        saved.len()
    }

    fn restore(&mut self, saved: Vec<u32>) -> Result<Restored<Self>, String> {
        let (snapshot, keys) = (Vec::new(), Vec::new());
        Ok(Restored { snapshot, keys, inputs: VecDeque::from([saved]) })
    }

    fn holds_restored(&self, _times: u32) -> bool {
        false
    }
}

type Restoring = Driver<Numbers, Scripted<Script>, ManualClock>;

/// A task that goes on with these rows.
#[expect(clippy::unwrap_used, reason = "helper of tests")]
fn restored(saved: &[u32]) -> (Restoring, Feeder<Numbers>) {
    let (mailbox, clock) = (Mailbox::new(), ManualClock::default());
    let world = World { clock: clock.clone(), replies: mailbox.reply_sender(0) };
    let function = Scripted::new(Box::new(echo) as Script, world);
    let (operator, driver) = config();
    let (codec, saved) = (Numbers::default(), saved.to_vec());
    let operator = ChainedOperator::restored(operator, driver, codec, function, saved).unwrap();
    Driver::new(mailbox, OperatorChain::new(operator), clock)
}

/// Takes turns until one fails, or the part has ended; then hands over what is held.
fn end_of(driver: &mut Restoring) -> Result<Vec<Vec<u32>>, String> {
    while !driver.has_part_ended() {
        if matches!(driver.take_turn()?, Turn::Finished) {
            return Ok(Vec::new());
        }
    }
    driver.carry().map(|carry| carry.operators)
}

#[test]
fn a_row_that_was_not_taken_up_is_missed_at_the_end_and_when_it_is_handed_over() {
    let missing = "operator 0 (`numbers`) has lost or doubled rows: 2 rows came in and 3 were restored, \
                   but 4 came out, 0 had no result, 0 were dropped";
    for is_part in [false, true] {
        let (mut driver, feeder) = restored(&[1, LOST_ROW, 3]);
        assert!(feeder.put(vec![4, 5]));
        if is_part {
            feeder.put_end_of_part(Patience::Drain);
        } else {
            feeder.put_end();
        }

        let error = end_of(&mut driver).unwrap_err();

        let handed_over = if is_part { ", 0 go to the next micro-batch" } else { "" };
        assert!(error.starts_with(&format!("{missing}{handed_over}. Options: ")), "{error}");
    }
}

#[test]
fn rows_that_were_taken_up_add_up() {
    let (mut driver, feeder) = restored(&[1, 2, 3]);
    assert!(feeder.put(vec![4, 5]));
    feeder.put_end_of_part(Patience::Drain);

    assert_eq!(end_of(&mut driver), Ok(vec![Vec::new()]));
}
