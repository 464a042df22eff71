// SPDX-License-Identifier: Apache-2.0
//! A task of several operators.

use std::sync::{Arc, Mutex};

use sparkawait_core::operator::{AttemptId, Config};
use sparkawait_runtime::clock::Clock;
use sparkawait_runtime::{
    ChainedOperator, Driver, DriverConfig, Feeder, Mailbox, OperatorChain, Turn,
};

use super::{ManualClock, Numbers, Scripted, Seen, Told, Turns, World};

/// What an operator of a chain does whenever its function is told something.
pub(crate) type Script = Box<dyn FnMut(&World, Told) + Send>;

/// A task of several operators, and all that a test looks at, by their positions.
pub(crate) struct Chain<C = ManualClock> {
    pub(crate) driver: Driver<Numbers, Scripted<Script>, C>,
    pub(crate) feeder: Feeder<Numbers>,
    pub(crate) worlds: Vec<World>,
    pub(crate) seen: Vec<Arc<Mutex<Seen>>>,
    told: Vec<Arc<Mutex<Vec<Told>>>>,
}

impl Chain {
    pub(crate) fn new(operators: Vec<((Config, DriverConfig), Script)>) -> Self {
        let clock = ManualClock::default();
        Self::with_clock(operators, &clock.clone(), clock)
    }
}

impl<C: Clock> Chain<C> {
    pub(crate) fn with_clock(
        operators: Vec<((Config, DriverConfig), Script)>,
        manual: &ManualClock,
        clock: C,
    ) -> Self {
        let mailbox = Mailbox::new();
        let mut chain: Option<OperatorChain<Numbers, Scripted<Script>>> = None;
        let (mut worlds, mut seen, mut told) = (vec![], vec![], vec![]);
        for (position, ((operator, driver), script)) in operators.into_iter().enumerate() {
            let replies = mailbox.reply_sender(position);
            let world = World { clock: manual.clone(), replies };
            let (its, hears) = (Arc::<Mutex<Seen>>::default(), Arc::<Mutex<Vec<Told>>>::default());
            let codec = Numbers { seen: Arc::clone(&its), ..Numbers::default() };
            let function = Scripted { script, world: world.clone(), told: Arc::clone(&hears) };
            let operator = ChainedOperator::new(operator, driver, codec, function);
            chain = Some(match chain {
                None => OperatorChain::new(operator),
                Some(chain) => chain.then(operator),
            });
            worlds.push(world);
            seen.push(its);
            told.push(hears);
        }
        let (driver, feeder) = Driver::new(mailbox, chain.unwrap(), clock);
        Self { driver, feeder, worlds, seen, told }
    }

    /// Hands over one batch; only two may wait while no turn is taken.
    pub(crate) fn feed(&self, rows: &[u32]) {
        assert!(self.feeder.put(rows.to_vec()));
    }

    /// What the function at `position` was told so far, as texts.
    pub(crate) fn told(&self, position: usize) -> Vec<String> {
        self.told[position].lock().unwrap().iter().map(Told::text).collect()
    }

    /// The last attempt of a row at `position`.
    pub(crate) fn attempt(&self, position: usize, row: u32) -> AttemptId {
        let told = self.told[position].lock().unwrap();
        let mut calls = told.iter().rev().filter_map(|told| match told {
            Told::Call(value, attempt) if *value == row => Some(*attempt),
            _ => None,
        });
        calls.next().unwrap()
    }

    /// Answers the call of a row at `position` with ten times the row.
    pub(crate) fn reply(&self, position: usize, row: u32) {
        assert!(self.worlds[position].reply(row, self.attempt(position, row)));
    }

    /// Takes all turns; returns the rows of all batches, and how it ended.
    pub(crate) fn run(&mut self) -> (Vec<String>, Result<(), String>) {
        let mut rows = Vec::new();
        loop {
            match self.driver.take_turn() {
                Ok(Turn::Output(batch)) => rows.extend(batch),
                Ok(Turn::Paused) => {}
                Ok(Turn::Finished) => return (rows, Ok(())),
                Err(error) => return (rows, Err(error)),
            }
        }
    }
}

impl<C: Clock> Turns for Chain<C> {
    fn take_turn(&mut self) -> Result<Turn<Vec<String>>, String> {
        self.driver.take_turn()
    }
}
