// SPDX-License-Identifier: Apache-2.0
//! A task on its own thread, and steps of it over a socket.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "support/echo.rs"]
mod echo;

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::AsArray;
use arrow::datatypes::Int64Type;
use echo::{BAD, BROKEN, SLOW, Started, batch, schema};
use sparkawait_core::ErrorKind;
use sparkawait_holder::endpoint::{Address, Answer, Bundle, Notice, RemoteTask, StepError, listen};
use sparkawait_holder::{Begun, BundleId, Claim, DetachedTask, PartEnd, ipc};
use sparkawait_runtime::Patience;
use sparkawait_runtime::held_part::{HeldPart, Holder};
use sparkawait_runtime::host_limit::page_of;
use sparkawait_runtime::private_folder::private_folder;
use sparkawait_runtime::shared_page::SharedPage;

const AT_ONCE: Patience = Patience::Linger(Duration::ZERO);
const LONG: Duration = Duration::from_secs(60);

fn start(saved: &[Vec<u8>]) -> Started {
    echo::start(saved, schema("row"), 8)
}

/// Brings a bundle, as a step does; returns what happened to it.
fn bring(task: &DetachedTask, rows: &[i64]) -> Claim {
    let bundle = BundleId::of(&ipc::write(&batch("row", rows)).unwrap());
    let claim = task.claim(bundle);
    if claim == Claim::New {
        task.put(batch("row", rows));
        task.note(bundle);
    }
    claim
}

/// Works a part off in this process.
fn part(task: &DetachedTask, number: u64, rows: &[i64], patience: Patience) -> Arc<PartEnd> {
    assert_eq!(task.begin("run", number), Begun::Yes);
    bring(task, rows);
    assert!(task.put_end(patience));
    task.wait(LONG).unwrap().unwrap()
}

fn bundle(rows: &[i64]) -> Bundle {
    Bundle::new(&ipc::write(&batch("row", rows)).unwrap())
}

/// Works a part off over a socket.
fn remote(mut task: RemoteTask, bundles: &[&[i64]]) -> Result<Arc<PartEnd>, StepError> {
    for rows in bundles {
        let bundle = bundle(rows);
        while !task.put(&bundle)? {}
    }
    while !task.put_end(AT_ONCE)? {}
    let mut answer = Answer::default();
    while !task.wait(&mut answer)? {}
    Ok(Arc::new(answer.finish()))
}

fn rows(end: &PartEnd) -> Vec<i64> {
    let batches = end.outputs.iter().map(|it| ipc::read_one(it).unwrap());
    let rows = batches.map(|it| it.column(1).as_primitive::<Int64Type>().values().to_vec());
    let mut rows: Vec<i64> = rows.flatten().collect();
    rows.sort_unstable();
    rows
}

/// Both rows of a part, however quick the answer was.
fn all_rows(task: &DetachedTask, first: &PartEnd, number: u64) -> Vec<i64> {
    let mut left = rows(first);
    left.extend(rows(&part(task, number, &[], Patience::Drain)));
    left.sort_unstable();
    left
}

#[test]
fn calls_go_on_between_parts() {
    let started = start(&[]);

    let first = part(&started.task, 0, &[1, SLOW], AT_ONCE);
    started.let_go();
    let second = part(&started.task, 1, &[], Patience::Drain);

    let mut left = [rows(&first), rows(&second)].concat();
    left.sort_unstable();
    assert_eq!(left, [1, SLOW]);
    assert_eq!((second.carried, second.held), (0, 0));
    assert_eq!([&first, &second].iter().map(|it| it.counts[0].attempts).sum::<u64>(), 2);
}

#[test]
fn what_is_saved_is_called_again_elsewhere() {
    let first = start(&[]);
    let end = part(&first.task, 0, &[SLOW, SLOW + 1], AT_ONCE);
    assert_eq!(end.carried, 2);
    first.task.close();

    let second = start(&end.operators);
    assert_eq!(second.task.begin("run", 0), Begun::Yes);
    while second.waiting.lock().unwrap().len() < 2 {
        std::thread::yield_now();
    }
    second.let_go();
    assert!(second.task.put_end(Patience::Drain));
    let end = second.task.wait(LONG).unwrap().unwrap();

    assert_eq!(rows(&end), [SLOW, SLOW + 1]);
}

#[test]
fn a_panic_of_the_thread_is_told_to_the_step_that_brings_the_part() {
    let started = start(&[]);
    assert_eq!(started.task.begin("run", 0), Begun::Yes);
    bring(&started.task, &[1, BROKEN]);
    assert!(started.task.put_end(AT_ONCE));

    // The function panics once more while it is closed.
    let told = started.task.wait(LONG).unwrap_err().to_string();

    assert!(told.contains("panicked: a call of -13; please report this"), "{told}");
    assert!(!started.task.put(batch("row", &[2])), "nobody waits to bring more rows");
    assert!(started.task.retire(LONG), "it is of no use any more");
}

#[test]
fn part_belongs_to_whoever_has_begun_it() {
    let started = start(&[]);

    assert_eq!(started.task.begin("run", 0), Begun::Yes);
    assert_eq!(started.task.begin("run", 0), Begun::Busy);
    assert!(started.task.put_end(AT_ONCE));
    started.task.wait(LONG).unwrap().unwrap();

    assert_eq!(started.task.begin("run", 1), Begun::Yes);
}

#[test]
fn task_that_is_not_what_the_state_says_is_given_up() {
    for (owner, number) in [("run", 2), ("another run", 1)] {
        let started = start(&[]);
        part(&started.task, 0, &[SLOW], AT_ONCE);

        assert_eq!(started.task.begin(owner, number), Begun::Stale);

        assert!(started.task.retire(LONG));
        assert_eq!(started.task.begin("run", 1), Begun::Stale);
    }
}

#[test]
fn task_that_nobody_uses_retires() {
    let started = start(&[]);
    part(&started.task, 0, &[SLOW], AT_ONCE);

    assert!(!started.task.retire(LONG));
    assert!(started.task.retire(Duration::ZERO));
    assert_eq!(started.task.begin("run", 1), Begun::Stale);
}

#[test]
fn failure_between_parts_is_told_in_the_next_one() {
    let started = start(&[]);
    assert_eq!(started.task.begin("run", 0), Begun::Yes);
    started.task.put(batch("row", &[BAD]));
    assert!(started.task.put_end(Patience::Drain));

    let error = started.task.wait(LONG).unwrap_err();

    assert!(error.to_string().contains("is down"), "{error}");
    assert_eq!(started.task.begin("run", 1), Begun::Stale);
}

#[test]
fn step_of_another_process_finds_what_is_in_flight() {
    let address = listen().unwrap();
    let started = start(&[]);
    part(&started.task, 0, &[SLOW], AT_ONCE);
    let begun = RemoteTask::begin(&address, started.task.id(), "run", 1).unwrap();
    started.let_go();

    let end = remote(begun, &[&[1, 2], &[], &[3, 4, 5]]).unwrap();

    assert_eq!(all_rows(&started.task, &end, 2), [1, 2, 3, 4, 5, SLOW]);
}

#[test]
fn more_rows_than_capacity_pass_a_connection() {
    let address = listen().unwrap();
    let started = start(&[]);
    let values: Vec<i64> = (0..SLOW).collect();
    let bundles: Vec<&[i64]> = values.chunks(10).collect();
    let begun = RemoteTask::begin(&address, started.task.id(), "run", 0).unwrap();

    let end = remote(begun, &bundles).unwrap();

    assert_eq!(all_rows(&started.task, &end, 1), values);
}

#[test]
fn failure_crosses_a_connection_with_its_kind() {
    let address = listen().unwrap();
    let started = start(&[]);
    assert_eq!(started.task.begin("run", 0), Begun::Yes);
    started.task.put(batch("row", &[1]));
    assert!(started.task.put_end(Patience::Drain));
    started.task.wait(LONG).unwrap().unwrap();
    let mut begun = RemoteTask::begin(&address, started.task.id(), "run", 1).unwrap();
    while !begun.put(&bundle(&[BAD])).unwrap() {}

    // The task may have failed before it hears of the end.
    let mut answer = Answer::default();
    let mut is_put = false;
    let error = loop {
        let step = if is_put {
            begun.wait(&mut answer).map(|_| ())
        } else {
            begun.put_end(Patience::Drain).map(|put| is_put = put)
        };
        if let Err(error) = step {
            break error;
        }
    };

    assert!(
        matches!(error, StepError::Failed { kind: ErrorKind::UserFunctionFailed, .. }),
        "{error}"
    );
}

#[test]
fn nobody_is_served_who_does_not_know_the_token_the_task_or_its_part() {
    let address = listen().unwrap();
    let started = start(&[]);
    let id = started.task.id();

    let other = Address { token: [0; 16], ..address.clone() };
    assert!(RemoteTask::begin(&other, id, "run", 0).is_none());
    let gone = Address { path: format!("{}.gone", address.path), ..address.clone() };
    assert!(RemoteTask::begin(&gone, id, "run", 0).is_none());
    assert!(RemoteTask::begin(&address, sparkawait_holder::TaskId([0; 16]), "run", 0).is_none());
    assert!(RemoteTask::begin(&address, id, "another run", 0).is_none());
    assert_eq!(started.task.begin("run", 0), Begun::Stale);
}

#[test]
fn step_that_is_carried_out_again_gets_the_same_answer_and_calls_nothing_twice() {
    let started = start(&[]);
    let first = part(&started.task, 0, &[1, SLOW], AT_ONCE);

    let again = part(&started.task, 0, &[1, SLOW], AT_ONCE);

    assert!(Arc::ptr_eq(&first, &again));
    started.let_go();
    let next = part(&started.task, 1, &[], Patience::Drain);
    let mut left = [rows(&again), rows(&next)].concat();
    left.sort_unstable();
    assert_eq!(left, [1, SLOW]);
    assert_eq!([&again, &next].iter().map(|it| it.counts[0].attempts).sum::<u64>(), 2);
    assert_eq!(started.task.begin("run", 0), Begun::Late, "who has gone on needs it no more");
}

#[test]
fn late_attempt_of_a_step_costs_the_others_nothing() {
    let address = listen().unwrap();
    let started = start(&[]);
    part(&started.task, 0, &[1, SLOW], AT_ONCE);
    let second = part(&started.task, 1, &[2], AT_ONCE);

    assert!(RemoteTask::begin(&address, started.task.id(), "run", 0).is_none());

    started.let_go();
    let next = part(&started.task, 2, &[], Patience::Drain);
    assert!(rows(&next).contains(&SLOW));
    assert_eq!([&second, &next].iter().map(|it| it.counts[0].attempts).sum::<u64>(), 1);
    // Who is ahead of it knows that nobody can go on with it.
    assert!(RemoteTask::begin(&address, started.task.id(), "run", 4).is_none());
    assert_eq!(started.task.begin("run", 3), Begun::Stale);
}

#[test]
fn step_whose_rows_cannot_be_read_is_told_so() {
    let address = listen().unwrap();
    let started = start(&[]);
    let mut begun = RemoteTask::begin(&address, started.task.id(), "run", 0).unwrap();

    let error = (|| {
        while !begun.put(&Bundle::new(b"no rows"))? {}
        while !begun.put_end(AT_ONCE)? {}
        let mut answer = Answer::default();
        while !begun.wait(&mut answer)? {}
        Ok::<(), StepError>(())
    })();

    assert!(matches!(error, Err(StepError::Lost(_))), "{error:?}");
    // It is there for one that brings them whole.
    assert_eq!(rows(&part(&started.task, 0, &[1], Patience::Drain)), [1]);
}

#[test]
fn step_in_another_process_finds_the_task_that_its_first_attempt_has_made() {
    let step = format!("run 7 0 of process {}", std::process::id());
    let started = start(&[]);
    let notice = Notice::post(&step, started.task.id(), &listen().unwrap()).unwrap();
    let first = part(&started.task, 0, &[1, SLOW], AT_ONCE);

    let (id, address) = Notice::find(&step).unwrap();
    let begun = RemoteTask::begin(&address, id, "run", 0).unwrap();
    let again = remote(begun, &[&[1, SLOW]]).unwrap();

    assert_eq!((&again.outputs, &again.operators), (&first.outputs, &first.operators));
    started.let_go();
    assert_eq!(all_rows(&started.task, &again, 1), [1, SLOW]);
    drop(notice);
    assert!(Notice::find(&step).is_none());
}

#[test]
fn step_with_other_rows_than_before_is_told_so() {
    for (bundles, is_new) in [(vec![[1]], false), (vec![[1], [2], [3]], true)] {
        let started = start(&[]);
        assert_eq!(started.task.begin("run", 0), Begun::Yes);
        for rows in [[1], [2]] {
            assert_eq!(bring(&started.task, &rows), Claim::New);
        }
        assert!(started.task.put_end(Patience::Drain));
        started.task.wait(LONG).unwrap().unwrap();

        assert_eq!(started.task.begin("run", 0), Begun::Yes);
        let claims: Vec<Claim> = bundles.iter().map(|it| bring(&started.task, it)).collect();

        assert_eq!(claims.contains(&Claim::Other), is_new);
        assert_eq!(started.task.put_end(Patience::Drain), is_new);
    }
}

#[test]
fn step_that_is_broken_off_is_gone_on_with() {
    let address = listen().unwrap();
    let started = start(&[]);
    let mut begun = RemoteTask::begin(&address, started.task.id(), "run", 0).unwrap();
    while !begun.put(&bundle(&[1, SLOW])).unwrap() {}
    while started.waiting.lock().unwrap().is_empty() {
        std::thread::yield_now();
    }

    drop(begun);

    let again = RemoteTask::begin(&address, started.task.id(), "run", 0).unwrap();
    let end = remote(again, &[&[2], &[1, SLOW]]).unwrap();
    started.let_go();
    assert_eq!(all_rows(&started.task, &end, 1), [1, 2, SLOW]);
    let counts = end.counts[0];
    assert_eq!((counts.attempts, started.waiting.lock().unwrap().len()), (3, 0));
}

#[test]
fn sockets_are_their_owners_alone() {
    use std::os::unix::fs::MetadataExt as _;

    let address = listen().unwrap();

    let folder = std::path::Path::new(&address.path).parent().unwrap();
    assert_eq!(std::fs::metadata(folder).unwrap().mode() & 0o777, 0o700);
    assert!(address.path.len() < 108, "{}", address.path);
    assert!(!format!("{address:?}").contains(&format!("{:?}", address.token)));
}

#[test]
fn limits_of_the_host_stay_when_a_process_listens_for_steps() {
    let folder = private_folder(&std::env::temp_dir()).unwrap();
    let page = page_of(&folder, &format!("holder test {}", std::process::id()));
    let limit = NonZeroU64::new(7).unwrap();
    let opened = SharedPage::open(&page).unwrap();
    let two = NonZeroU64::new(2).unwrap();
    let holder = |executor| Holder { parts: two, executor, held: two };
    let part = HeldPart::take(&page, limit, &holder(7)).unwrap();

    listen().unwrap();

    assert!(page.exists(), "who opens it again gets the same words");
    let other = HeldPart::take(&page, limit, &holder(11)).unwrap();
    assert_eq!((part.number(), other.number()), (0, 1), "each part is held once");
    drop((opened, part, other));
    let is_ours = |name: &str| name.starts_with(page.file_name().unwrap().to_str().unwrap());
    for entry in std::fs::read_dir(&folder).unwrap().flatten() {
        if entry.file_name().to_str().is_some_and(is_ours) {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
}
