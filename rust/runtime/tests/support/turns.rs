// SPDX-License-Identifier: Apache-2.0
//! What a test expects a turn to come to.

use sparkawait_runtime::Turn;

/// Something that takes turns, with rows as texts.
pub(crate) trait Turns {
    /// Takes a turn, whatever it comes to.
    fn take_turn(&mut self) -> Result<Turn<Vec<String>>, String>;

    /// Takes a turn that gives a batch.
    fn output(&mut self) -> Vec<String> {
        match self.take_turn() {
            Ok(Turn::Output(rows)) => rows,
            turn => panic!("expected a batch, got {turn:?}"),
        }
    }

    /// Takes a turn in which time runs out.
    fn pause(&mut self) {
        let turn = self.take_turn();
        assert!(matches!(turn, Ok(Turn::Paused)), "expected a pause, got {turn:?}");
    }

    /// Takes the last turn.
    fn finish(&mut self) {
        let turn = self.take_turn();
        assert!(matches!(turn, Ok(Turn::Finished)), "expected the end, got {turn:?}");
    }

    /// Takes a turn that fails.
    fn failure(&mut self) -> String {
        self.take_turn().unwrap_err()
    }
}
