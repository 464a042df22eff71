// SPDX-License-Identifier: Apache-2.0
//! Texts that may change while tasks run: a password, a token, an address with one in it.
//!
//! A secret is read when a task starts, and again when it was refused: once for all that share it
//! and at most once a second. Each process waits a moment of its own before, so that those of a job
//! do not ask at once. What cannot be read, or does not come for long, leaves the last text as it is.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{Mutex as Turn, oneshot};
use tokio::time::{Instant, sleep, timeout};

/// Least time from one reading to the next.
const PAUSE: Duration = Duration::from_secs(1);

/// A source that costs little is read again before a text that is older is used.
const FRESH: Duration = Duration::from_secs(5);

/// Longest moment that a process waits by chance.
const JITTER: Duration = Duration::from_millis(100);

/// Longest time that a reading is waited for; connections wait with it.
const PATIENCE: Duration =
    if cfg!(test) { Duration::from_millis(13) } else { Duration::from_secs(10) };

/// Where a secret comes from.
pub trait Source: Send + Sync + 'static {
    /// Reads it; may block.
    ///
    /// # Errors
    ///
    /// It is not there. The text is for logs, and shows nothing of a secret.
    fn read(&self) -> Result<String, String>;

    /// Whether reading costs no more than that of a file.
    fn is_cheap(&self) -> bool;
}

/// The sources of a function's secrets, by the names that its description gives them.
pub type Sources = HashMap<String, Arc<dyn Source>>;

/// A text that may change.
pub struct Secret {
    state: Mutex<State>,
    version: AtomicU64,
    /// Held by the one who reads it again; a reading that has not ended yet.
    turn: Turn<Option<Reading>>,
}

/// A reading of a source that has not been heard of yet.
struct Reading {
    source: Arc<dyn Source>,
    begun: Instant,
    telling: oneshot::Receiver<Result<String, String>>,
}

#[derive(Clone)]
struct State {
    text: Arc<str>,
    source: Option<Arc<dyn Source>>,
    /// When the last reading of it began.
    read: Instant,
}

impl Secret {
    /// Makes a secret out of the text that was read just now; without a source it never changes.
    #[must_use]
    pub fn new(text: &str, source: Option<Arc<dyn Source>>) -> Self {
        let state = State { text: Arc::from(text), source, read: Instant::now() };
        Self { state: Mutex::new(state), version: AtomicU64::new(0), turn: Turn::new(None) }
    }

    /// Takes over what another one was made of.
    pub fn replace(&self, by: Self) {
        let by = by.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        let is_new = state.text != by.text;
        *state = by;
        self.count(is_new);
    }

    /// Returns how often the text has changed; without a lock.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Whether it may change.
    pub fn may_change(&self) -> bool {
        self.state().source.is_some()
    }

    /// Returns the text as it was read last.
    pub fn text(&self) -> Arc<str> {
        Arc::clone(&self.state().text)
    }

    /// Returns the text, read again if that costs little and it may have changed meanwhile.
    pub async fn fresh(&self) -> Arc<str> {
        let State { text, source, read } = self.state().clone();
        if source.is_some_and(|it| it.is_cheap()) && read.elapsed() > FRESH {
            self.read(&text, Duration::ZERO).await;
        }
        self.text()
    }

    /// Returns another text than the one that was refused, if there is one by now. Those who wait
    /// for one reading share what it came to.
    ///
    /// # Cancel safety
    ///
    /// A reading that has begun goes on, and who asks next hears of it.
    pub async fn instead_of(&self, refused: &str) -> Option<Arc<str>> {
        let chance = RandomState::new().hash_one(refused) % 1024;
        self.read(refused, JITTER * u32::try_from(chance).unwrap_or_default() / 1024).await;
        Some(self.text()).filter(|it| **it != *refused)
    }

    /// Reads it again, unless somebody has done so meanwhile.
    async fn read(&self, known: &str, jitter: Duration) {
        let asked = Instant::now();
        let mut turn = self.turn.lock().await;
        let State { text, source, read } = self.state().clone();
        let Some(source) = source else { return };
        if *text != *known || read > asked {
            return;
        }
        // One of another source tells nothing any more.
        turn.take_if(|it| !Arc::ptr_eq(&it.source, &source));
        // One that was given up may have told since, perhaps long ago: what it says may be known by now.
        let told = turn.as_mut().and_then(|it| it.telling.try_recv().ok());
        let news = told.and_then(Result::ok).filter(|it| *it != *known);
        if turn.as_ref().is_some_and(|it| it.telling.is_terminated()) {
            *turn = None;
        }
        let result = if let Some(text) = news {
            Ok(text)
        } else {
            if turn.is_none() {
                sleep(jitter.max(PAUSE.saturating_sub(read.elapsed()))).await;
                self.state().read = Instant::now();
            }
            match told_by(&mut turn, &source).await {
                Some(result) => result,
                None => return,
            }
        };
        let mut state = self.state();
        match result {
            Ok(text) => {
                let is_new = *state.text != *text;
                state.text = Arc::from(text);
                self.count(is_new);
            }
            Err(reason) => {
                tracing::warn!(reason, "a secret could not be read again; the last one is kept");
            }
        }
    }

    /// Counts a text that was set; while the state is locked.
    fn count(&self, is_new: bool) {
        self.version.fetch_add(u64::from(is_new), Ordering::AcqRel);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for the reading that goes on, or else for one that begins; for as long as it has from its begin.
/// Returns nothing for one that was given up: it hangs, and no other begins beside it.
///
/// # Cancel safety
///
/// The reading goes on, and stays where it is.
async fn told_by(
    turn: &mut Option<Reading>,
    source: &Arc<dyn Source>,
) -> Option<Result<String, String>> {
    let reading = match turn {
        Some(reading) => reading,
        None => match begin(source) {
            Ok(reading) => turn.insert(reading),
            Err(error) => return Some(Err(error)),
        },
    };
    let left = PATIENCE.checked_sub(reading.begun.elapsed())?;
    if let Ok(told) = timeout(left, &mut reading.telling).await {
        *turn = None;
        return Some(told.unwrap_or_else(|_| Err("it panicked".to_owned())));
    }
    Some(Err(format!("it did not come within {} s", PATIENCE.as_secs())))
}

/// Begins to read a source, which may block.
fn begin(source: &Arc<dyn Source>) -> Result<Reading, String> {
    let (told, telling) = oneshot::channel();
    let read = Arc::clone(source);
    let reading = move || {
        #[expect(clippy::let_underscore_must_use, reason = "nobody waits any more")]
        let _ = told.send(read.read());
    };
    let started = thread::Builder::new().name("sparkawait-secret".to_owned()).spawn(reading);
    started.map_err(|error| error.to_string())?;
    Ok(Reading { source: Arc::clone(source), begun: Instant::now(), telling })
}

/// Shows secrets to somebody by `attempt`, as they are now. Where that is refused they are read again, and
/// shown once more if one has changed; of secrets that may change, a refusal is made one that `may_pass`.
///
/// # Errors
///
/// What the last attempt failed with.
pub async fn show<'a, T, E>(
    secrets: &[&Secret],
    attempt: impl Fn() -> BoxFuture<'a, Result<T, E>>,
    is_refused: impl Fn(&E) -> bool,
    may_pass: impl Fn(E) -> E,
) -> Result<T, E> {
    let mut known = Vec::with_capacity(secrets.len());
    for secret in secrets {
        known.push(secret.fresh().await);
    }
    let mut shown = attempt().await;
    if shown.as_ref().is_err_and(&is_refused) && secrets.iter().any(|it| it.may_change()) {
        let mut is_new = false;
        for (secret, refused) in secrets.iter().zip(&known) {
            is_new |= secret.instead_of(refused).await.is_some();
        }
        if is_new {
            shown = attempt().await;
        }
        // It may be changing just now.
        shown = shown.map_err(|it| if is_refused(&it) { may_pass(it) } else { it });
    }
    shown
}

// Shows nothing of the text.
sparkawait_core::opaque_debug!(Secret);

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::FutureExt;

    use super::*;

    /// Gives one text after the other, and fails where there is none.
    struct Changing {
        texts: Vec<Option<&'static str>>,
        readings: AtomicUsize,
        is_cheap: bool,
    }

    impl Source for Changing {
        fn read(&self) -> Result<String, String> {
            let reading = self.readings.fetch_add(1, Ordering::Relaxed);
            let text = self.texts.get(reading).copied().flatten();
            text.map(str::to_owned).ok_or_else(|| "gone".to_owned())
        }

        fn is_cheap(&self) -> bool {
            self.is_cheap
        }
    }

    fn changing(texts: &[Option<&'static str>], is_cheap: bool) -> (Arc<Changing>, Secret) {
        let readings = AtomicUsize::new(0);
        let source = Arc::new(Changing { texts: texts.to_vec(), readings, is_cheap });
        let secret = Secret::new("first", Some(Arc::clone(&source) as Arc<dyn Source>));
        // As if it had been read long ago.
        secret.state().read = Instant::now().checked_sub(FRESH * 2).unwrap();
        (source, secret)
    }

    #[tokio::test]
    async fn all_who_were_refused_read_it_once() {
        let (source, secret) = changing(&[Some("second"), Some("third")], false);

        let refused = (0..13).map(|_| secret.instead_of("first"));
        let found = futures_util::future::join_all(refused).await;

        assert!(found.iter().all(|it| it.as_deref() == Some("second")));
        assert_eq!((source.readings.load(Ordering::Relaxed), secret.version()), (1, 1));
    }

    #[tokio::test]
    async fn all_who_were_refused_hear_of_one_reading_that_there_is_nothing_else() {
        let (source, secret) = changing(&[Some("first"), Some("second")], false);

        let refused = (0..13).map(|_| secret.instead_of("first"));
        let found = futures_util::future::join_all(refused).await;

        assert_eq!(found, vec![None; 13]);
        assert_eq!((source.readings.load(Ordering::Relaxed), secret.version()), (1, 0));
        secret.replace(Secret::new("third", None));
        assert_eq!(secret.version(), 1);
    }

    #[tokio::test]
    async fn what_cannot_be_read_leaves_the_last_text() {
        let (_, secret) = changing(&[None, Some("second")], false);

        assert_eq!(secret.instead_of("first").await, None);
        assert_eq!(&*secret.text(), "first");
        secret.state().read = Instant::now().checked_sub(PAUSE).unwrap();
        assert_eq!(secret.instead_of("first").await.as_deref(), Some("second"));
    }

    /// Shows a secret to one who takes `good`; returns what that came to, and what was shown.
    async fn shown(secret: &Secret, good: &str) -> (Result<(), &'static str>, Vec<Arc<str>>) {
        let texts = Mutex::new(Vec::new());
        let attempt = || {
            let text = secret.text();
            texts.lock().unwrap().push(Arc::clone(&text));
            ready(if *text == *good { Ok(()) } else { Err("refused") }).boxed()
        };
        let result = show(&[secret], attempt, |it| *it == "refused", |_| "later").await;
        (result, texts.into_inner().unwrap())
    }

    #[tokio::test]
    async fn what_was_refused_is_shown_once_more_if_it_has_changed() {
        let texts = |all: &[&str]| all.iter().map(|it| Arc::from(*it)).collect::<Vec<Arc<str>>>();
        let (one, both) = (texts(&["first"]), texts(&["first", "second"]));
        let (_, secret) = changing(&[Some("second")], false);
        assert_eq!(shown(&secret, "second").await, (Ok(()), both.clone()));

        let (_, secret) = changing(&[Some("second")], false);
        assert_eq!(shown(&secret, "third").await, (Err("later"), both));

        let (_, secret) = changing(&[None], false);
        assert_eq!(shown(&secret, "second").await, (Err("later"), one.clone()));
        let fixed = Secret::new("first", None);
        assert_eq!(shown(&fixed, "second").await, (Err("refused"), one));
    }

    #[tokio::test]
    async fn only_what_costs_little_is_read_unasked() {
        let (_, file) = changing(&[Some("second")], true);
        let (_, provider) = changing(&[Some("second")], false);

        assert_eq!((&*file.fresh().await, &*provider.fresh().await), ("second", "first"));
        assert_eq!(&*Secret::new("fixed", None).fresh().await, "fixed");
        assert!(!format!("{file:?}").contains("second"));
    }

    /// Gives a text once it is let go.
    struct Hanging(Mutex<std::sync::mpsc::Receiver<()>>, AtomicUsize);

    impl Source for Hanging {
        fn read(&self) -> Result<String, String> {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.0.lock().unwrap().recv().unwrap_err();
            Ok("second".to_owned())
        }

        fn is_cheap(&self) -> bool {
            false
        }
    }

    #[tokio::test]
    async fn a_source_that_hangs_is_not_waited_for_and_what_it_says_late_is_taken() {
        let (release, hangs) = std::sync::mpsc::channel();
        let source = Arc::new(Hanging(Mutex::new(hangs), AtomicUsize::new(0)));
        let secret = Secret::new("first", Some(Arc::clone(&source) as Arc<dyn Source>));
        let ask = async || {
            secret.state().read = Instant::now().checked_sub(PAUSE).unwrap();
            secret.instead_of("first").await
        };

        for _ in 0..3 {
            assert_eq!(ask().await, None);
            assert_eq!(&*secret.text(), "first");
        }
        drop(release);
        while ask().await.is_none() {}

        assert_eq!(&*secret.text(), "second");
        assert_eq!(source.1.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn who_gives_up_leaves_the_reading_to_the_next_and_one_that_hangs_is_waited_for_once() {
        let (release, hangs) = std::sync::mpsc::channel();
        let source = Arc::new(Hanging(Mutex::new(hangs), AtomicUsize::new(0)));
        let secret = Secret::new("first", Some(Arc::clone(&source) as Arc<dyn Source>));
        let long_ago = || secret.state().read = Instant::now().checked_sub(PAUSE).unwrap();
        for _ in 0..13 {
            long_ago();
            let asked = pin!(secret.read("first", Duration::ZERO));
            // Once it sleeps, once it waits for the reading: then its row has timed out.
            let begins = source.1.load(Ordering::Relaxed) == 0;
            drop(timeout(if begins { PATIENCE / 7 } else { Duration::ZERO }, asked).await);
        }
        while secret.turn.lock().await.as_ref().is_some_and(|it| it.begun.elapsed() < PATIENCE) {
            tokio::task::yield_now().await;
        }
        // It is given up by now: nobody waits.
        long_ago();
        assert!(secret.read("first", Duration::ZERO).now_or_never().is_some());
        assert_eq!(source.1.load(Ordering::Relaxed), 1);

        // What it says at last is what is known by then, so the source is read again.
        secret.state().text = Arc::from("second");
        drop(release);
        while source.1.load(Ordering::Relaxed) == 1 {
            long_ago();
            assert_eq!(secret.instead_of("second").await, None);
        }
    }
}
