// SPDX-License-Identifier: Apache-2.0
//! What goes wrong on purpose.

/// What happens to a call instead of an answer, or to its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fault {
    /// A status, with what the dialect says beside it.
    Status(u16),
    /// The answer ends before its end, as if `max_tokens` were spent.
    Cut,
    /// All tokens were thought, and none is left for an answer.
    Silent,
    /// The answer is not what the schema says.
    Invalid,
    /// The model says that it will not answer.
    Refusal,
    /// A filter has taken the answer away.
    Filtered,
    /// Nothing comes.
    Stall,
    /// The connection is reset, and the call is paid for.
    Reset,
}

impl Fault {
    /// Finds a fault by its name.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "429" | "498" | "500" | "503" | "529" => Self::Status(name.parse().ok()?),
            "cut" => Self::Cut,
            "silent" => Self::Silent,
            "invalid" => Self::Invalid,
            "refusal" => Self::Refusal,
            "filtered" => Self::Filtered,
            "stall" => Self::Stall,
            "reset" => Self::Reset,
            _ => return None,
        })
    }

    /// Finds what a prompt asks for, and whether that is for its first call alone.
    pub(super) fn in_prompt(prompt: &str) -> Option<(Self, bool)> {
        let (_, rest) = prompt.split_once("[[")?;
        let (words, _) = rest.split_once("]]")?;
        let (name, is_once) = words.strip_suffix(" once").map_or((words, false), |it| (it, true));
        Some((Self::from_name(name)?, is_once))
    }
}

/// Whether shares are from 0 to 1, and add up to 1 at most.
pub(super) fn are_shares(faults: &[(Fault, f64)]) -> bool {
    let sum: f64 = faults.iter().map(|(_, share)| share).sum();
    faults.iter().all(|(_, share)| (0.0..=1.0).contains(share)) && sum <= 1.0 + f64::EPSILON
}

/// Returns the fault that a number from 0 to 1 stands for.
pub(super) fn drawn(faults: &[(Fault, f64)], draw: f64) -> Option<Fault> {
    let mut sum = 0.0;
    faults.iter().find_map(|(fault, share)| {
        sum += share;
        (draw < sum).then_some(*fault)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_names_a_fault_for_all_calls_or_for_the_first() {
        assert_eq!(Fault::in_prompt("a [[cut]] b"), Some((Fault::Cut, false)));
        assert_eq!(Fault::in_prompt("[[529 once]]"), Some((Fault::Status(529), true)));
        assert_eq!(Fault::in_prompt("[[nothing]] [[cut]]"), None);
        assert_eq!(Fault::in_prompt("[[cut"), None);
    }

    #[test]
    fn shares_are_those_asked_for() {
        let faults = [(Fault::Cut, 0.25), (Fault::Reset, 0.5)];

        assert_eq!(drawn(&faults, 0.24), Some(Fault::Cut));
        assert_eq!(drawn(&faults, 0.74), Some(Fault::Reset));
        assert_eq!(drawn(&faults, 0.75), None);
        assert!(are_shares(&faults));
        assert!(!are_shares(&[(Fault::Cut, 0.7), (Fault::Stall, 0.7)]));
        assert!(!are_shares(&[(Fault::Cut, f64::NAN)]));
    }
}
