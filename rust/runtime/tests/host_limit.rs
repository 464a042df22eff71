// SPDX-License-Identifier: Apache-2.0
//! Limits that processes of a host share: kept together, even if some are killed.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::num::NonZeroU64;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use std::{env, fs, thread};

use rustix::fs::{FlockOperation, flock};
use sparkawait_core::ProcessingTime;
use sparkawait_core::policy::{Answer, Gcra, Ledgers, MAX_LIMITS, Rate};
use sparkawait_runtime::clock::Clock;
use sparkawait_runtime::held_part::{HeldPart, Holder};
use sparkawait_runtime::host_limit::{
    HostClock, HostLimit, HostLimits, HostPlaces, SharedTerms, page_of,
};
use sparkawait_runtime::private_folder::FolderError;
use sparkawait_runtime::shared_page::{PageError, SharedPage};

/// Where a child finds the page.
const PATH: &str = "SPARKAWAIT_TEST_PAGE";

/// A directory that is removed at the end.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("sparkawait-test-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn page(&self) -> PathBuf {
        page_of(&self.0.join("own"), "application-1")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn limit(permits: u64, burst: u64) -> Gcra {
    let rate = Rate::new(NonZeroU64::new(permits).unwrap(), Duration::from_secs(1)).unwrap();
    Gcra::new(rate, NonZeroU64::new(burst).unwrap())
}

fn open(path: &Path, name: &str, gcra: Gcra) -> HostLimit {
    HostLimit::new(Arc::new(SharedPage::open(path).unwrap()), name, gcra).unwrap()
}

/// Takes permits as fast as it can, by a clock that it moves itself.
fn take_all(limit: &HostLimit, count: usize, mut now: ProcessingTime) -> Vec<u64> {
    let mut taken = Vec::new();
    while taken.len() < count {
        match limit.reserve(1, now, Duration::ZERO) {
            Ok(at) => taken.push(at.as_nanos()),
            Err(again) => now = again,
        }
    }
    taken
}

/// The number of permits in any second is that of the rate and the burst at most.
fn assert_kept(mut taken: Vec<u64>, most: usize) {
    taken.sort_unstable();
    for (index, end) in taken.iter().enumerate().skip(most) {
        assert!(end - taken[index - most] >= 1_000_000_000, "more than {most} in a second");
    }
}

#[test]
fn whoever_opens_the_page_shares_its_limits() {
    let directory = Directory::new("shares");
    let now = ProcessingTime::from_nanos(5);
    let first = open(&directory.page(), "api", limit(10, 2));
    let second = open(&directory.page(), "api", limit(10, 2));
    let other = open(&directory.page(), "other", limit(10, 2));

    assert_eq!(first.reserve(1, now, Duration::ZERO), Ok(now));
    assert_eq!(second.reserve(1, now, Duration::ZERO), Ok(now));
    let after = |millis| now + Duration::from_millis(millis);
    // A place that begins now, and has what comes in it.
    assert_eq!(first.reserve(1, now, Duration::ZERO), Ok(after(100)));
    assert_eq!(first.reserve(1, now, Duration::ZERO), Err(after(100)));
    assert_eq!(second.reserve(1, now, Duration::from_millis(150)), Ok(after(200)));
    assert_eq!(first.reserve(1, now, Duration::from_millis(150)), Err(after(50)));
    assert_eq!(other.reserve(2, now, Duration::ZERO), Ok(now));

    HostPlaces::new(second.clone()).settle(1, 0);
    assert_eq!(first.reserve(1, now, Duration::from_millis(150)), Ok(after(200)));
}

#[test]
fn a_dear_call_has_its_place_as_soon_as_a_cheap_one() {
    let directory = Directory::new("dear");
    let shared = open(&directory.page(), "api", limit(1000, 50));
    let (mut now, horizon) = (ProcessingTime::from_nanos(7), Duration::from_millis(3));
    shared.drain(0, now);
    for _ in 0..5 {
        now = now + Duration::from_millis(10);
        while shared.reserve(1, now, horizon).is_ok() {}
        // As soon as the next one has a place, whatever it costs.
        let next = now + Duration::from_millis(1);
        let ready = shared.reserve(30, next, horizon).unwrap();
        assert!(ready <= next + Duration::from_millis(3 + 30), "{ready:?} after {next:?}");
        now = next + Duration::from_millis(40);
    }
}

/// Lets two that share 100 000 permits a minute take what they can for 60 seconds; each makes calls
/// of one cost, and comes up to `late` after its time. Returns how much each has taken, and when.
fn compete(directory: &Directory, costs: [u64; 2], late: u64) -> ([u64; 2], Vec<(u64, u64)>) {
    compete_settled(directory, 5_000, costs, costs, late)
}

/// Does so with `burst` at once, and calls that are charged `estimates` and prove to have cost `costs`
/// 170 ms later.
fn compete_settled(
    directory: &Directory,
    burst: u64,
    estimates: [u64; 2],
    costs: [u64; 2],
    late: u64,
) -> ([u64; 2], Vec<(u64, u64)>) {
    const SECOND: u64 = 1_000_000_000;
    const LATENCY: u64 = 170_000_000;
    let rate = Rate::new(NonZeroU64::new(100_000).unwrap(), Duration::from_secs(60)).unwrap();
    let gcra = Gcra::new(rate, NonZeroU64::new(burst).unwrap());
    let name = format!("{burst} {estimates:?} {costs:?} {late}");
    let places = [(); 2].map(|()| HostPlaces::new(open(&directory.page(), &name, gcra)));
    let begin = 1_000 * SECOND;
    let (mut next, mut has_place, mut taken) = ([begin; 2], [false; 2], [0; 2]);
    let (mut calls, mut ends) = (Vec::new(), VecDeque::new());
    for step in 1.. {
        let one = usize::from(next[1] < next[0]);
        let now = next[one];
        if now > begin + 60 * SECOND {
            break;
        }
        while let Some((_, of)) = ends.front().copied().filter(|it: &(u64, usize)| it.0 <= now) {
            ends.pop_front();
            places[of].settle(estimates[of], costs[of]);
        }
        if std::mem::take(&mut has_place[one]) {
            taken[one] += costs[one];
            calls.push((now, costs[one]));
            ends.push_back((now + LATENCY, one));
        }
        let place = places[one].reserve(estimates[one], ProcessingTime::from_nanos(now));
        has_place[one] = place.is_ok();
        let (Ok(at) | Err(at)) = place;
        next[one] = at.as_nanos() + if late > 0 { step * 7_919 % late } else { 0 };
    }
    (taken, calls)
}

#[test]
fn whoever_makes_dear_calls_has_as_much_of_a_limit_as_whoever_makes_cheap_ones() {
    let directory = Directory::new("halves");
    for costs in [[800, 10], [10, 800], [800, 800], [13, 7], [1, 4_999], [7_000, 10]] {
        for late in [0, 1_300_000] {
            let (taken, calls) = compete(&directory, costs, late);
            let all: u64 = taken.iter().sum();
            let share = taken[0] * 100 / all;
            assert!((45..=55).contains(&share), "{costs:?}, {late}: {taken:?}");
            assert!(all >= 98_000, "{costs:?}, {late}: {taken:?} of 105 000");
            if late == 0 && costs.iter().all(|cost| *cost <= 5_000) {
                assert_windows(&calls);
            }
        }
    }
}

#[test]
fn whoever_estimates_too_little_or_too_much_has_as_much_of_a_limit_as_others() {
    let directory = Directory::new("estimates");
    let late = 1_300_000;
    let (taken, _) = compete_settled(&directory, 5_000, [1_000, 100], [0, 100], late);
    assert!(taken[1] >= 90_000, "free calls take no permits: {taken:?}");
    for burst in [100, 313, 1_000, 5_000] {
        for (estimates, costs) in
            [([100, 100], [1_000, 100]), ([100, 100], [100, 1_000]), ([7, 800], [70, 800])]
        {
            let (taken, _) = compete_settled(&directory, burst, estimates, costs, late);
            let (all, share) = (taken[0] + taken[1], taken[0] * 100 / (taken[0] + taken[1]));
            let what = format!("{estimates:?} for {costs:?}, burst {burst}: {taken:?}");
            assert!((45..=55).contains(&share), "{what}");
            assert!((95_000..=106_000).contains(&all), "{what}");
        }
    }
}

/// In any time there are permits of the burst and of that time at most: 5 000, and 100 000 a minute.
fn assert_windows(calls: &[(u64, u64)]) {
    let minute = 60_000_000_000_u128;
    let mut most_ahead = i128::MIN;
    let mut taken = 0_i128;
    for (at, cost) in calls {
        let come = i128::try_from(u128::from(*at) * 100_000 / minute).unwrap();
        most_ahead = most_ahead.max(come - taken);
        taken += i128::from(*cost);
        assert!(taken - come + most_ahead <= 5_001, "more than the burst at {at}");
    }
}

#[test]
fn what_one_process_gives_up_no_other_has() {
    let directory = Directory::new("drained");
    let now = ProcessingTime::from_nanos(5);
    let first = open(&directory.page(), "api", limit(10, 8));
    let second = open(&directory.page(), "api", limit(10, 8));
    let other = open(&directory.page(), "other", limit(10, 8));

    first.drain(0, now);
    let after = |millis| now + Duration::from_millis(millis);
    assert_eq!(second.reserve(3, after(300), Duration::ZERO), Ok(after(300)));
    // What somebody has reserved already is not taken back.
    assert_eq!(second.reserve(1, after(300), Duration::ZERO), Ok(after(400)));
    first.drain(1, after(300));
    assert_eq!(second.reserve(1, after(300), Duration::ZERO), Err(after(400)));
    assert_eq!(second.reserve(1, after(400), Duration::ZERO), Ok(after(500)));
    assert_eq!(other.reserve(8, now, Duration::ZERO), Ok(now));
}

#[test]
fn threads_never_take_more_than_there_is() {
    let directory = Directory::new("threads");
    let path = directory.page();
    let takers: Vec<_> = (0..4)
        .map(|_| {
            let path = path.clone();
            thread::spawn(move || {
                take_all(&open(&path, "api", limit(1000, 50)), 5000, ProcessingTime::ZERO)
            })
        })
        .collect();
    let taken: Vec<u64> = takers.into_iter().flat_map(|it| it.join().unwrap()).collect();
    // What each had in its first second, by its own clock, and all of them together.
    assert_eq!(taken.len(), 20_000);
    let last = taken.iter().max().unwrap();
    assert!(*last >= (20_000 - 50) * 1_000_000, "permits came too fast");
    assert!(*last <= 20_000 * 1_000_000, "permits were lost");
}

/// What a child of the tests below does, until it is killed.
#[test]
#[ignore = "run by other tests, in a process of its own"]
#[expect(clippy::print_stdout, reason = "what it tells its parent")]
fn child() {
    let limit = open(Path::new(&env::var_os(PATH).unwrap()), "api", limit(20_000, 100));
    for _ in 0..2_000 {
        let at = loop {
            match limit.reserve(1, HostClock.now(), Duration::ZERO) {
                Ok(at) => break at,
                Err(again) => while HostClock.now() < again {},
            }
        };
        while HostClock.now() < at {}
        println!("took {}", at.as_nanos());
    }
}

fn start_child(name: &str, path: &Path) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", name, "--ignored", "--nocapture"])
        .env(PATH, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn told_by(child: &mut Child) -> impl Iterator<Item = u64> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.filter_map(|line| line.unwrap().strip_prefix("took ")?.parse().ok())
}

#[test]
fn processes_keep_a_limit_together_and_one_that_is_killed_leaves_it_whole() {
    let directory = Directory::new("processes");
    let mut children: Vec<Child> =
        (0..3).map(|_| start_child("child", &directory.page())).collect();
    let mut killed = start_child("child", &directory.page());
    let mut taken: Vec<u64> = told_by(&mut killed).take(500).collect();
    assert_eq!(taken.len(), 500);
    killed.kill().unwrap();
    killed.wait().unwrap();
    for child in &mut children {
        let told: Vec<u64> = told_by(child).collect();
        assert_eq!(told.len(), 2_000);
        taken.extend(told);
        assert!(child.wait().unwrap().success());
    }
    assert_kept(taken, 20_000 + 100);
    // And it is not used up.
    let limit = open(&directory.page(), "api", limit(20_000, 100));
    let later = HostClock.now() + Duration::from_secs(1);
    assert_eq!(limit.reserve(100, later, Duration::ZERO), Ok(later));
}

/// Takes part in a limit of a permit an hour that has seven parts with two at once each; that many
/// are for the processes of an executor.
fn join(path: &Path, executor: u64, held: u64) -> HostLimits {
    let rate = Rate::new(NonZeroU64::MIN, Duration::from_secs(3600)).unwrap();
    let [two, parts, held] = [2, 7, held].map(|it| NonZeroU64::new(it).unwrap());
    let holder = Some(Holder { parts, executor, held });
    let terms = SharedTerms { name: "api".to_owned(), limit: Gcra::new(rate, two), holder };
    HostLimits::open(path, only(terms)).unwrap()
}

/// Returns the terms of an operator that has one limit.
fn only(terms: SharedTerms) -> [Option<SharedTerms>; MAX_LIMITS] {
    let mut limits = [const { None }; MAX_LIMITS];
    limits[0] = Some(terms);
    limits
}

fn takes(limits: &HostLimits, cost: u64) -> bool {
    let now = ProcessingTime::from_nanos(5);
    let source = limits.open(0, None).unwrap();
    let place = source.ask(cost, now);
    if matches!(place, Answer::Ticket(at) if at > now) {
        source.settle(cost, 0);
    }
    place == Answer::Ticket(now)
}

/// Takes part in the limit above with a permit of its part, until it is killed.
#[test]
#[ignore = "run by another test, in a process of its own"]
#[expect(clippy::print_stdout, reason = "what it tells its parent")]
fn partner() {
    let limits = join(Path::new(&env::var_os(PATH).unwrap()), 3, 2);
    println!("took {}", u64::from(takes(&limits, 1)));
    thread::park();
}

#[test]
fn who_holds_a_part_finds_what_the_one_before_has_left() {
    let directory = Directory::new("parts");
    let mut other = start_child("partner", &directory.page());
    assert_eq!(told_by(&mut other).next(), Some(1));
    let first = join(&directory.page(), 3, 2);
    assert!(takes(&first, 2), "the other process has another part");
    let second = join(&directory.page(), 3, 2);
    assert!(!takes(&second, 1), "a process has one part, whatever it calls");

    drop((first, second));
    let later = join(&directory.page(), 3, 2);
    assert!(!takes(&later, 1), "it is the same part");
    drop(later);
    other.kill().unwrap();
    other.wait().unwrap();
    // The part of that process, which had one of its two permits.
    for left in [1, 0] {
        let mut next = start_child("partner", &directory.page());
        assert_eq!(told_by(&mut next).next(), Some(left));
        next.kill().unwrap();
        next.wait().unwrap();
    }
}

#[test]
fn an_executor_has_no_more_parts_than_are_for_it() {
    let directory = Directory::new("held");
    let mut other = start_child("partner", &directory.page());
    assert_eq!(told_by(&mut other).next(), Some(1));

    let here = join(&directory.page(), 3, 1);
    assert!(!takes(&here, 2), "it is shared, although the limit has seven parts");
    assert!(takes(&here, 1));
    // Another executor of the host has its own.
    assert!(takes(&join(&directory.page(), 4, 1), 2));
    other.kill().unwrap();
    other.wait().unwrap();
}

/// Holds a part until it is killed.
#[test]
#[ignore = "run by another test, in a process of its own"]
#[expect(clippy::print_stdout, reason = "what it tells its parent")]
fn holder() {
    let part = take_part(Path::new(&env::var_os(PATH).unwrap()));
    println!("took {}", part.number());
    thread::park();
}

fn take_part(page: &Path) -> HeldPart {
    drop(SharedPage::open(page).unwrap());
    let three = NonZeroU64::new(3).unwrap();
    let holder = Holder { parts: three, executor: 0, held: three };
    HeldPart::take(page, NonZeroU64::MIN, &holder).unwrap()
}

#[test]
fn a_part_of_a_process_that_is_killed_is_free() {
    let directory = Directory::new("holder");
    let mut holder = start_child("holder", &directory.page());
    assert_eq!(told_by(&mut holder).next(), Some(0));
    let second = take_part(&directory.page());
    assert_eq!(second.number(), 1);
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!(take_part(&directory.page()).number(), 1, "a process has one");
    let mut holder = start_child("holder", &directory.page());
    assert_eq!(told_by(&mut holder).next(), Some(0));
    holder.kill().unwrap();
    holder.wait().unwrap();
}

/// A process that is forked has the files of its parent, locks included.
#[test]
fn a_part_whose_lock_was_inherited_from_a_process_that_is_gone_is_free() {
    let directory = Directory::new("inherited");
    let page = directory.page();
    let mut holder = start_child("holder", &page);
    assert_eq!(told_by(&mut holder).next(), Some(0));
    let files = fs::read_dir(page.parent().unwrap()).unwrap();
    let mut paths = files.map(|it| it.unwrap().path());
    let of_part = paths.find(|it| it.to_string_lossy().ends_with("-0")).unwrap();
    let owner = fs::read_to_string(&of_part).unwrap();
    holder.kill().unwrap();
    holder.wait().unwrap();
    let inherited = File::open(&of_part).unwrap();
    flock(&inherited, FlockOperation::NonBlockingLockExclusive).unwrap();

    let part = take_part(&page);

    assert_eq!(part.number(), 0);
    assert_ne!(fs::read_to_string(&of_part).unwrap(), owner);
    let taken = File::open(&of_part).unwrap();
    let locked = flock(&taken, FlockOperation::NonBlockingLockExclusive);
    assert!(locked.is_err(), "who has it holds the lock of its file");
}

/// Who counts its processes otherwise, as another container does, may be there.
#[test]
fn a_part_of_a_process_that_cannot_be_looked_for_is_held() {
    let directory = Directory::new("elsewhere");
    let page = directory.page();
    let part = take_part(&page);
    let files = fs::read_dir(page.parent().unwrap()).unwrap();
    let mut paths = files.map(|it| it.unwrap().path());
    let of_part = paths.find(|it| it.to_string_lossy().ends_with("-0")).unwrap();
    for owner in ["0000000000000000 2147483646 pid:[13]", "", "what is this"] {
        fs::write(&of_part, owner).unwrap();

        assert_eq!(take_part(&page).number(), 1, "{owner}");
    }
    drop(part);
}

#[test]
fn a_name_has_one_rate() {
    let directory = Directory::new("terms");
    let page = Arc::new(SharedPage::open(&directory.page()).unwrap());
    HostLimit::new(Arc::clone(&page), "api", limit(10, 2)).unwrap();
    let other = HostLimit::new(page, "api", limit(11, 2));
    assert!(matches!(other, Err(PageError::OtherTerms)));
}

#[test]
fn a_page_has_so_many_names() {
    let directory = Directory::new("full");
    let page = SharedPage::open(&directory.page()).unwrap();
    let one = NonZeroU64::MIN;
    let slots = (1..).map_while(|name| page.slot(NonZeroU64::new(name).unwrap(), one).ok());
    assert_eq!(slots.count(), 2047);
    assert!(matches!(page.slot(NonZeroU64::MAX, one), Err(PageError::Full)));
    assert!(page.slot(NonZeroU64::new(7).unwrap(), one).is_ok());
}

#[test]
fn tenants_that_come_and_go_each_have_their_limit() {
    let directory = Directory::new("tenants");
    let page = Arc::new(SharedPage::open(&directory.page()).unwrap());
    let now = |tenant: u64| ProcessingTime::from_nanos(1_000_000_007 * (tenant + 1));
    let of = |tenant: u64, now| {
        HostLimit::of_many(Arc::clone(&page), &format!("tenant {tenant}"), limit(10, 2), now)
    };
    let takes = |it: &HostLimit, now| it.reserve(1, now, Duration::ZERO) == Ok(now);
    let mut early = Vec::new();
    for tenant in 0..5_003 {
        let own = of(tenant, now(tenant)).unwrap();
        let had = [(); 3].map(|()| takes(&own, now(tenant)));
        assert_eq!(had, [true, true, false], "tenant {tenant}");
        early.push(own);
        early.truncate(1_800);
    }
    // One whose place others have by now has another one, and shares it with those of its name.
    for (tenant, own) in (0..).zip(&early) {
        let (later, partner) = (now(6_007), of(tenant, now(6_007)).unwrap());
        let had = [own, &partner, own, &partner].map(|it| takes(it, later));
        assert_eq!(had, [true, true, false, false], "tenant {tenant}");
        if tenant == 1_400 {
            break;
        }
    }
    // With all places in use there is no more.
    let most = (0..).map_while(|tenant| of(10_000 + tenant, now(6_008)).ok()).count();
    assert!((1..200).contains(&most), "{most} places were idle");
}

#[test]
fn channels_leave_room_for_limits_of_others() {
    let directory = Directory::new("channels");
    let terms = |name: &str| {
        let one = SharedTerms { name: name.into(), limit: limit(10, 2), holder: None };
        only(one)
    };
    let of_tenants = HostLimits::open(&directory.page(), terms("tenants")).unwrap();
    for tenant in 0..3000 {
        assert!(of_tenants.open(0, Some(tenant)).is_some());
    }
    for number in 0..500 {
        assert!(HostLimits::open(&directory.page(), terms(&format!("api {number}"))).is_ok());
    }
}

#[test]
fn a_page_of_another_version_is_refused_while_somebody_has_it_and_replaced_afterwards() {
    let directory = Directory::new("version");
    let path = directory.page();
    drop(SharedPage::open(&path).unwrap());
    let whole = fs::read(&path).unwrap();
    let mut other = whole.clone();
    other[0] ^= 3;

    for left_behind in [&other[..], &whole[..100], &[]] {
        fs::write(&path, left_behind).unwrap();
        let reader = File::open(&path).unwrap();
        flock(&reader, FlockOperation::LockShared).unwrap();
        assert!(matches!(SharedPage::open(&path), Err(PageError::OtherVersion(_))));
        drop(reader);

        // All processes of a host may come at once.
        let (one, open) = (NonZeroU64::MIN, || SharedPage::open(&path).unwrap());
        let pages = thread::scope(|scope| {
            let opening: Vec<_> = (0..7).map(|_| scope.spawn(open)).collect();
            opening.into_iter().map(|it| it.join().unwrap()).collect::<Vec<_>>()
        });
        pages[0].slot(NonZeroU64::new(5).unwrap(), one).unwrap();
        let other_terms = NonZeroU64::new(3).unwrap();
        for page in &pages {
            let slot = page.slot(NonZeroU64::new(5).unwrap(), other_terms);
            assert!(matches!(slot, Err(PageError::OtherTerms)));
        }
    }
}

#[test]
fn a_page_has_all_of_its_place_on_the_disk() {
    let directory = Directory::new("whole");
    let path = directory.page();
    drop(SharedPage::open(&path).unwrap());
    let page = fs::metadata(&path).unwrap();
    let written = directory.0.join("written");
    fs::write(&written, vec![0; usize::try_from(page.len()).unwrap()]).unwrap();

    assert_eq!(page.blocks(), fs::metadata(&written).unwrap().blocks());
}

#[test]
fn a_directory_that_others_could_write_to_is_refused() {
    let directory = Directory::new("private");
    let path = directory.page();
    let own = path.parent().unwrap();
    fs::DirBuilder::new().mode(0o700).create(own).unwrap();
    fs::set_permissions(own, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(SharedPage::open(&path), Err(PageError::Folder(FolderError::NotPrivate(_)))));

    fs::remove_dir(own).unwrap();
    let elsewhere = directory.0.join("elsewhere");
    fs::DirBuilder::new().mode(0o700).create(&elsewhere).unwrap();
    symlink(&elsewhere, own).unwrap();
    assert!(matches!(SharedPage::open(&path), Err(PageError::Folder(FolderError::NotPrivate(_)))));
}

#[test]
fn drafts_of_pages_do_not_stay() {
    let directory = Directory::new("drafts");
    let path = directory.page();
    let openers: Vec<_> = (0..8)
        .map(|_| {
            let path = path.clone();
            thread::spawn(move || SharedPage::open(&path).is_ok())
        })
        .collect();
    assert!(openers.into_iter().all(|it| it.join().unwrap()));
    assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
}

#[test]
fn what_nobody_has_opened_for_a_week_is_removed() {
    let directory = Directory::new("old");
    let page_of = |application: &str| page_of(&directory.0.join("own"), application);
    let own = page_of("").parent().unwrap().to_owned();
    let open = SharedPage::open(&page_of("open")).unwrap();
    drop(SharedPage::open(&page_of("closed")).unwrap());
    drop(SharedPage::open(&page_of("young")).unwrap());
    let (lock, other) = (own.join("limits-7-8-0"), own.join("7.task"));
    fs::write(&lock, "").unwrap();
    fs::write(&other, "").unwrap();
    let week = SystemTime::now() - Duration::from_secs(7 * 86_400 + 60);
    for path in [page_of("open"), page_of("closed"), lock.clone(), other.clone()] {
        File::open(path).unwrap().set_modified(week).unwrap();
    }

    drop(SharedPage::open(&page_of("new")).unwrap());

    let is_there = [page_of("open"), page_of("young"), page_of("new"), other].map(|it| it.exists());
    assert_eq!(is_there, [true; 4]);
    assert_eq!([page_of("closed"), lock].map(|it| it.exists()), [false; 2]);
    drop(open);
    // Who comes back finds a new one.
    assert!(SharedPage::open(&page_of("closed")).is_ok());
}

#[test]
fn applications_have_pages_of_their_own() {
    let at = Path::new("/tmp");
    assert_eq!(page_of(at, "a"), page_of(at, "a"));
    assert_ne!(page_of(at, "a"), page_of(at, "b"));
}
