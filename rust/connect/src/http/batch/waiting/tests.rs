// SPDX-License-Identifier: Apache-2.0
//! Tests of items that wait, on a clock of their own.

use std::convert::Infallible;
use std::num::NonZeroUsize;

use proptest::prelude::*;
use sparkawait_core::Key;
use sparkawait_core::queue::{OrderedStreamElementQueue, StreamElementQueue};

use super::*;
use crate::http::reply::Outgoing;
use crate::lines::Lines;

/// Requests of a channel.
const REQUESTS: usize = 2;

/// A channel, and what tells the heads of its items from others.
type LineKey = (Option<Key>, Bytes);

/// Items of several channels, as the engine of requests has them.
struct Waiting {
    most: Most,
    lines: Lines<Heads>,
}

impl Waiting {
    fn new(most: Most) -> Self {
        Self { lines: Lines::new(REQUESTS), most }
    }

    fn add<E>(
        &mut self,
        (channel, name): LineKey,
        item: Item,
        now: Instant,
        open: impl FnOnce() -> Result<Option<Source>, E>,
    ) -> Result<bool, E> {
        self.lines.change(channel, |heads| heads.add(name, None, item, &self.most, now, open))
    }

    fn take(&mut self, now: Instant) -> Option<(Option<Key>, Batch)> {
        let (channel, batch) = self.lines.take(1, |heads, _| heads.take(&self.most, now))?;
        Some((channel, batch.expect("a channel that is ready has a request")))
    }

    fn remove(&mut self, cancelled: &[AttemptId], now: Instant) {
        self.lines.remove(|heads| heads.remove(cancelled, &self.most, now));
    }
}

fn attempts(count: usize) -> Vec<AttemptId> {
    let mut queue =
        OrderedStreamElementQueue::<(), ()>::new(NonZeroUsize::new(count.max(1)).unwrap());
    (0..count).map(|_| AttemptId { entry: queue.try_put(()).unwrap(), attempt: 1 }).collect()
}

fn most(rows: usize) -> Most {
    let linger = Duration::from_millis(10);
    Most { rows, bytes: 1000, linger, are_named: false }
}

fn any_head() -> Source {
    Source::Items(Arc::new(Head::for_test()), Doubt::Any)
}

fn item(attempt: AttemptId, bytes: usize, id: &str) -> Item {
    let text = Bytes::from(vec![b'x'; bytes]);
    Item {
        attempt,
        text,
        id: Bytes::copy_from_slice(id.as_bytes()),
        key: Bytes::new(),
        halvings: 0,
    }
}

fn line(channel: u64, name: &'static str) -> LineKey {
    (Some(Key::new(channel)), Bytes::from_static(name.as_bytes()))
}

fn add(waiting: &mut Waiting, line: &LineKey, item: Item, now: Instant) {
    let open = || Ok::<_, Infallible>(Some(any_head()));
    assert_eq!(waiting.add(line.clone(), item, now, open), Ok(true));
}

/// Adds an item to a line that is there; returns whether there is none.
fn is_new(waiting: &mut Waiting, line: &LineKey, item: Item) -> bool {
    waiting.add(line.clone(), item, Instant::now(), || Err(())).is_err()
}

/// Sizes of the requests that can be made now.
fn taken(waiting: &mut Waiting, now: Instant) -> Vec<usize> {
    std::iter::from_fn(|| waiting.take(now)).map(|(_, batch)| batch.items.len()).collect()
}

#[test]
fn a_full_request_leaves_at_once_and_the_rest_when_the_oldest_has_waited() {
    let (mut waiting, start) = (Waiting::new(most(2)), Instant::now());
    for attempt in attempts(3) {
        add(&mut waiting, &line(1, ""), item(attempt, 1, ""), start);
    }

    assert_eq!(taken(&mut waiting, start), [2]);
    let due = waiting.lines.due().unwrap();
    assert_eq!(due, start + Duration::from_millis(10));
    waiting.lines.expire(due - Duration::from_nanos(1));
    assert!(taken(&mut waiting, due - Duration::from_nanos(1)).is_empty());
    waiting.lines.expire(due);
    assert_eq!(taken(&mut waiting, due), [1]);
    assert_eq!(waiting.lines.due(), None);
}

#[test]
fn a_request_has_no_more_bytes_than_allowed_but_for_a_single_row() {
    let (mut waiting, now) = (Waiting::new(most(100)), Instant::now());
    for (attempt, bytes) in attempts(4).into_iter().zip([600, 300, 200, 5000]) {
        add(&mut waiting, &line(1, ""), item(attempt, bytes, ""), now);
    }

    assert_eq!(taken(&mut waiting, now), [2, 1]);
    waiting.lines.ended(Some(Key::new(1)));
    assert_eq!(taken(&mut waiting, now), [1]);
}

#[test]
fn a_channel_has_its_requests_and_others_go_on() {
    let (mut waiting, now) = (Waiting::new(most(1)), Instant::now());
    let (one, other) = (line(1, ""), line(2, ""));
    for attempt in attempts(3) {
        add(&mut waiting, &one, item(attempt, 1, ""), now);
    }
    add(&mut waiting, &other, item(attempts(1)[0], 1, ""), now);

    let channels = std::iter::from_fn(|| waiting.take(now)).map(|(channel, _)| channel);
    assert_eq!(channels.collect::<Vec<_>>(), [one.0, other.0, one.0]);
    waiting.lines.ended(one.0);
    assert_eq!(taken(&mut waiting, now), [1]);
}

#[test]
fn lines_of_one_channel_share_its_requests_and_take_turns() {
    let (mut waiting, now) = (Waiting::new(most(1)), Instant::now());
    let names = ["a", "b", "c"];
    let lines = names.map(|name| (None, Bytes::from_static(name.as_bytes())));
    for (attempt, of) in attempts(6).into_iter().zip([0, 0, 0, 1, 2, 1]) {
        add(&mut waiting, &lines[of], item(attempt, 1, names[of]), now);
    }

    let next = |waiting: &mut Waiting| waiting.take(now).map(|(_, it)| it.items[0].id.clone());
    let first = [next(&mut waiting), next(&mut waiting), next(&mut waiting)];
    assert_eq!(first, [Some("a".into()), Some("b".into()), None]);
    for name in ["c", "a", "b", "a"] {
        waiting.lines.ended(None);
        assert_eq!(next(&mut waiting), Some(name.into()));
    }
}

#[test]
fn rows_of_one_name_go_one_after_the_other() {
    let (mut waiting, now) = (Waiting::new(Most { are_named: true, ..most(3) }), Instant::now());
    for (attempt, id) in attempts(4).into_iter().zip(["a", "a", "b", "a"]) {
        add(&mut waiting, &line(1, ""), item(attempt, 1, id), now);
    }

    let names = |batch: &Batch| batch.items.iter().map(|it| it.id.clone()).collect::<Vec<_>>();
    assert_eq!(names(&waiting.take(now).unwrap().1), ["a", "b"]);
    assert!(waiting.take(now).is_none(), "the others wait for company");
    let due = waiting.lines.due().unwrap();
    waiting.lines.expire(due);
    assert_eq!(names(&waiting.take(due).unwrap().1), ["a"]);
    waiting.lines.ended(Some(Key::new(1)));
    assert_eq!(names(&waiting.take(due).unwrap().1), ["a"]);
}

#[test]
fn what_is_cancelled_is_not_asked_for_and_does_not_hurry_others() {
    let (mut waiting, start) = (Waiting::new(most(10)), Instant::now());
    let (line, all) = (line(1, ""), attempts(2));
    add(&mut waiting, &line, item(all[0], 1, ""), start);
    let later = start + Duration::from_millis(4);
    add(&mut waiting, &line, item(all[1], 1, ""), later);

    waiting.remove(&[all[0]], later);

    assert_eq!(waiting.lines.due(), Some(later + Duration::from_millis(10)));
    waiting.remove(&[all[1]], later);
    assert_eq!(waiting.lines.due(), None);
    assert!(is_new(&mut waiting, &line, item(all[1], 1, "")));
}

#[test]
fn a_line_that_is_full_no_more_waits_for_company_again() {
    let (mut waiting, start) = (Waiting::new(most(3)), Instant::now());
    let all = attempts(3);
    for attempt in &all {
        add(&mut waiting, &line(1, "a"), item(*attempt, 1, ""), start);
    }

    waiting.remove(&[all[1]], start);

    assert!(waiting.take(start).is_none());
    let due = waiting.lines.due().unwrap();
    waiting.lines.expire(due);
    assert_eq!(taken(&mut waiting, due), [2]);
}

#[test]
fn items_of_a_part_go_together_when_all_are_back_or_the_first_has_waited() {
    let (mut waiting, start) = (Waiting::new(most(5)), Instant::now());
    let (all, channel) = (attempts(7), Some(Key::new(1)));
    let add = |waiting: &mut Waiting, index: usize, seat: Option<(u64, bool)>| {
        let seat = seat.map(|(company, is_whole)| Seat { company, is_whole, is_patient: false });
        let item = item(all[index], 1, "");
        let open = || Ok::<_, Infallible>(Some(any_head()));
        let most = waiting.most;
        waiting.lines.change(channel, |it| it.add(Bytes::new(), seat, item, &most, start, open))
    };
    let next = |waiting: &mut Waiting, now| {
        let batch = waiting.take(now)?.1;
        waiting.lines.ended(channel);
        Some(batch.attempts)
    };
    for (index, seat) in
        [None, Some((3, false)), Some((4, false)), Some((3, true)), Some((5, false)), None]
            .into_iter()
            .enumerate()
    {
        assert_eq!(add(&mut waiting, index, seat), Ok(true));
    }

    assert_eq!(next(&mut waiting, start), Some(vec![all[1], all[3]]));
    assert_eq!(next(&mut waiting, start), None);
    // The other row of the part 4 has timed out, say.
    let due = start + waiting.most.linger;
    waiting.lines.expire(due);
    let mut late: Vec<_> = std::iter::from_fn(|| next(&mut waiting, due)).collect();
    late.sort_unstable();
    assert_eq!(late, [vec![all[0], all[5]], vec![all[2]], vec![all[4]]]);
    assert_eq!(waiting.lines.due(), None);
}

#[test]
fn a_request_that_was_sent_waits_for_its_rows_as_long_as_they_come() {
    let (mut waiting, start) = (Waiting::new(most(9)), Instant::now());
    let (all, channel) = (attempts(3), Some(Key::new(1)));
    let sent = Arc::new(Sent { request: Outgoing::for_test(), items: Vec::new() });
    let add = |waiting: &mut Waiting, index: usize, is_whole: bool, now: Instant| {
        let (its_seat, item) =
            (Some(Seat { company: 3, is_whole, is_patient: true }), item(all[index], 0, ""));
        let open = || Ok::<_, Infallible>(Some(Source::Sent(Arc::clone(&sent))));
        let most = waiting.most;
        waiting.lines.change(channel, |it| it.add(Bytes::new(), its_seat, item, &most, now, open))
    };
    let patience = PATIENCE + waiting.most.linger;
    assert_eq!(add(&mut waiting, 0, false, start), Ok(true));
    let later = start + PATIENCE;
    assert_eq!(add(&mut waiting, 1, false, later), Ok(true));
    assert_eq!(waiting.lines.due(), Some(later + patience));

    assert_eq!(add(&mut waiting, 2, true, later), Ok(true));

    assert_eq!((waiting.lines.due(), taken(&mut waiting, later)), (None, vec![3]));
    waiting.lines.ended(channel);
    assert_eq!(add(&mut waiting, 1, false, later), Ok(true));
    waiting.lines.expire(later + patience);
    assert_eq!(taken(&mut waiting, later + patience), [1]);
}

#[test]
fn a_line_lives_as_long_as_it_has_items() {
    let (mut waiting, now) = (Waiting::new(most(1)), Instant::now());
    let (line, all) = (line(1, "a"), attempts(2));
    let none = waiting.add(line.clone(), item(all[0], 1, ""), now, || Ok::<_, ()>(None));
    assert_eq!((none, waiting.lines.due()), (Ok(false), None));

    add(&mut waiting, &line, item(all[0], 1, ""), now);
    assert!(!is_new(&mut waiting, &line, item(all[1], 1, "")));
    assert_eq!(taken(&mut waiting, now), [1, 1]);
    assert!(is_new(&mut waiting, &line, item(all[1], 1, "")));
}

#[derive(Clone, Debug)]
enum Step {
    Add(LineKey, usize, u8),
    End,
    Wait(u64),
    Cancel(prop::sample::Index),
}

fn lines() -> impl Strategy<Value = LineKey> {
    (0..3_u64, prop::sample::select(vec!["", "a"])).prop_map(|(channel, name)| line(channel, name))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (lines(), 1..700_usize, 0..4_u8).prop_map(|(line, bytes, id)| Step::Add(line, bytes, id)),
        2 => Just(Step::End),
        2 => (0..15_u64).prop_map(Step::Wait),
        1 => any::<prop::sample::Index>().prop_map(Step::Cancel),
    ]
}

proptest! {
    #[test]
    fn each_item_leaves_once_in_time_and_within_the_bounds(
        steps in prop::collection::vec(step(), 1..120),
        are_named in any::<bool>(),
        rows in 1..5_usize,
    ) {
        let most = Most { rows, are_named, ..most(rows) };
        let (mut all, mut now) = (Waiting::new(most), Instant::now());
        let mut free = attempts(steps.len()).into_iter();
        let mut waiting: Vec<(AttemptId, LineKey, Instant)> = Vec::new();
        let mut running: Vec<Option<Key>> = Vec::new();
        for step in steps {
            match step {
                Step::Add(line, bytes, id) => {
                    let attempt = free.next().unwrap();
                    add(&mut all, &line, item(attempt, bytes, &id.to_string()), now);
                    waiting.push((attempt, line, now));
                }
                Step::End => if let Some(channel) = running.pop() {
                    all.lines.ended(channel);
                },
                Step::Wait(millis) => now += Duration::from_millis(millis),
                Step::Cancel(index) => if !waiting.is_empty() {
                    let gone = waiting.remove(index.index(waiting.len()));
                    all.remove(&[gone.0], now);
                },
            }
            all.lines.expire(now);
            while let Some((channel, batch)) = all.take(now) {
                prop_assert!(!batch.items.is_empty() && batch.items.len() <= rows);
                let bytes: usize = batch.items.iter().map(|it| it.text.len()).sum();
                prop_assert!(bytes <= most.bytes || batch.items.len() == 1);
                let names: HashSet<_> = batch.items.iter().map(|it| &it.id).collect();
                prop_assert!(!are_named || names.len() == batch.items.len());
                let mut heads = HashSet::new();
                for it in &batch.items {
                    let at = waiting.iter().position(|(id, of, _)| *id == it.attempt && of.0 == channel);
                    prop_assert!(at.is_some(), "taken twice, cancelled, or of another channel");
                    heads.insert(waiting.remove(at.unwrap()).1.1);
                }
                prop_assert_eq!(heads.len(), 1, "of several lines");
                running.push(channel);
            }
            for ((channel, _), since) in waiting.iter().map(|(_, line, since)| (line, since)) {
                let requests = running.iter().filter(|of| *of == channel).count();
                prop_assert!(requests <= REQUESTS);
                prop_assert!(now < *since + most.linger || requests == REQUESTS, "left behind");
            }
        }
    }
}
