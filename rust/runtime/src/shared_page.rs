// SPDX-License-Identifier: Apache-2.0
//! Words of memory that the processes of a host share, without a daemon.
//!
//! A page is a file that is mapped: it lives as long as somebody has it open, and
//! a week beyond, and what a process that was killed wrote stays true. There is
//! no lock in it. All that happens is one atomic operation on one word.
//!
//! ```text
//!   word 0            1         2, 3      slot 0                      slot 1
//!   magic, version    changes   unused    name  terms  value  count   name  terms  value  count  ...
//! ```
//!
//! A slot belongs to the name that was written into it. Its *terms* say what the value means, and a
//! process that comes with others is refused. The value is a time. Where it is long past it says no
//! more than a slot that was never used, so a full page gives it to another name. Who has used it
//! before finds that its name is another one, and looks for a slot again.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use memmap2::MmapRaw;
use rustix::fs::{FlockOperation, flock};
use sparkawait_core::ProcessingTime;

use crate::private_folder::{FolderError, make_private};

/// `spkawait` and the version of the layout below.
const MAGIC: u64 = u64::from_be_bytes(*b"spkawai\x02");

/// Words of a page.
const WORDS: usize = 8192;

/// Words before the first slot.
const HEADER: usize = 4;

/// Words of a slot: name, terms, value and count.
const SLOT: usize = 4;

/// Slots of a page.
const SLOTS: usize = (WORDS - HEADER) / SLOT;

/// The first slots, which are not for names that can do without one.
const RESERVED: usize = SLOTS / 4;

/// A slot whose value is so long past may be given to another name.
const IDLE: Duration = Duration::from_secs(60);

/// The value of a slot that is given to another name just now; no time is as late.
const GIVEN_AWAY: u64 = u64::MAX - 1;

/// How the names of pages begin, and of files that belong to them.
pub const PREFIX: &str = "limits-";

/// How long a page is kept that nobody opens.
const KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How long another process takes to remove a page of an earlier version, at most some times that.
const REMOVAL: Duration = Duration::from_millis(2);

/// Why a page, or a slot of it, cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// The file or its directory.
    #[error("the page `{path}`, which processes of this host share, cannot be used: {error}")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Its directory.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A process has the file open, which is not a page of this version.
    #[error(
        "`{0}` was not written by this version of sparkawait; \
         all processes of an application must have the same"
    )]
    OtherVersion(PathBuf),
    /// The slot means something else.
    #[error(
        "another limit of this application has the same name with another rate or burst; \
         give it another `name`"
    )]
    OtherTerms,
    /// The rate does not fit into a word.
    #[error("this rate cannot be set while tasks run: write it with fewer digits")]
    OddRate,
    /// There are too many names.
    #[error(
        "no more than {SLOTS} limits can be shared by the processes of a host while a Spark \
         application lives: start another one, or share limits by the same `name`"
    )]
    Full,
}

/// Some thousand words that all processes see which open the same path.
pub struct SharedPage {
    map: MmapRaw,
    path: PathBuf,
    /// Locked, together with others, as long as it is open.
    _file: File,
}

sparkawait_core::opaque_debug!(SharedPage);

impl SharedPage {
    /// Opens the page at `path`, and makes it if there is none.
    ///
    /// Its directory is made, too, readable for this user alone.
    ///
    /// # Errors
    ///
    /// [`PageError`]: the directory is not private, or the file is something else.
    pub fn open(path: &Path) -> Result<Self, PageError> {
        let io = |error| PageError::Io { path: path.to_owned(), error };
        let directory = path.parent().ok_or_else(|| io(io::ErrorKind::InvalidInput.into()))?;
        make_private(directory)?;
        let mut tries = 50;
        let file = loop {
            let file = match open_file(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    make_page(path).map_err(io)?;
                    remove_old(directory);
                    continue;
                }
                opened => opened.map_err(io)?,
            };
            if !is_page(&file).map_err(io)? {
                // What an earlier version left behind is in nobody's way, but other processes may be
                // about to remove it, too.
                if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                    if is_at(&file, path).map_err(io)? {
                        fs::remove_file(path).map_err(io)?;
                    }
                } else if tries == 0 {
                    return Err(PageError::OtherVersion(path.to_owned()));
                } else {
                    tries -= 1;
                    thread::sleep(REMOVAL);
                }
                continue;
            }
            // A process that removes it as an old one has locked it.
            flock(&file, FlockOperation::LockShared).map_err(|error| io(error.into()))?;
            if is_at(&file, path).map_err(io)? {
                break file;
            }
        };
        file.set_modified(SystemTime::now()).map_err(io)?;
        let map = MmapRaw::map_raw(&file).map_err(io)?;
        Ok(Self { map, path: path.to_owned(), _file: file })
    }

    /// Returns the slot of `name`, and takes one if it has none.
    ///
    /// # Errors
    ///
    /// [`PageError::OtherTerms`] if it was taken with others, [`PageError::Full`] without a free
    /// one.
    pub fn slot(&self, name: NonZeroU64, terms: NonZeroU64) -> Result<Slot, PageError> {
        let at = self.find(0, name, terms)?;
        Ok(Slot { at: AtomicUsize::new(at), name, terms, spare: false })
    }

    /// Returns the slot of a name that can do without one: there may be thousands of them, which
    /// leave a quarter of the page to others. Where all are taken it has one that is long idle.
    ///
    /// # Errors
    ///
    /// As [`slot`](Self::slot).
    pub fn spare_slot(
        &self,
        name: NonZeroU64,
        terms: NonZeroU64,
        now: ProcessingTime,
    ) -> Result<Slot, PageError> {
        let at = self.find_spare(name, terms, now)?;
        Ok(Slot { at: AtomicUsize::new(at), name, terms, spare: true })
    }

    fn find_spare(
        &self,
        name: NonZeroU64,
        terms: NonZeroU64,
        now: ProcessingTime,
    ) -> Result<usize, PageError> {
        let at = match self.find(RESERVED, name, terms) {
            Err(PageError::Full) => self.take_idle(name, terms, now)?,
            found => found?,
        };
        // It is not idle before it was used.
        let (value, order) = (&self.words()[at], Ordering::Relaxed);
        value.compare_exchange(0, now.as_nanos(), order, order).unwrap_or_default();
        Ok(at)
    }

    /// Returns where the value of a name is that has a slot, or takes one that nobody has.
    fn find(&self, least: usize, name: NonZeroU64, terms: NonZeroU64) -> Result<usize, PageError> {
        let words = self.words();
        for at in places(least, name) {
            let is_of_name = claim(&words[at - 2], name) == name.get();
            if is_of_name && words[at].load(Ordering::Acquire) != GIVEN_AWAY {
                let is_same = claim(&words[at - 1], terms) == terms.get();
                return if is_same { Ok(at) } else { Err(PageError::OtherTerms) };
            }
        }
        Err(PageError::Full)
    }

    /// Gives a slot that is long idle to a name that has none, in a page without a free one.
    ///
    /// One process after the other, or two would give the same name a slot each. If one is killed
    /// here the slot stays given away, and the next one takes it.
    #[cold]
    fn take_idle(
        &self,
        name: NonZeroU64,
        terms: NonZeroU64,
        now: ProcessingTime,
    ) -> Result<usize, PageError> {
        let mut door = self.path.as_os_str().to_owned();
        door.push("-door");
        let io = |error| PageError::Io { path: self.path.clone(), error };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let door = options.open(door).map_err(io)?;
        flock(&door, FlockOperation::LockExclusive).map_err(|error| io(error.into()))?;
        match self.find(RESERVED, name, terms) {
            Err(PageError::Full) => {}
            found => return found,
        }
        let words = self.words();
        let is_idle = |value| value > 0 && ProcessingTime::from_nanos(value) + IDLE < now;
        for at in places(RESERVED, name) {
            let value = words[at].load(Ordering::Acquire);
            // From here on nobody takes from it by its old name.
            let (taken, order) = (Ordering::AcqRel, Ordering::Acquire);
            let is_taken = value == GIVEN_AWAY
                || (is_idle(value)
                    && words[at].compare_exchange(value, GIVEN_AWAY, taken, order).is_ok());
            if is_taken {
                words[at - 2].store(name.get(), Ordering::Release);
                words[at - 1].store(terms.get(), Ordering::Release);
                words[at].store(now.as_nanos(), Ordering::Release);
                return Ok(at);
            }
        }
        Err(PageError::Full)
    }

    /// Changes the value of a slot, as often as it takes until nobody else does meanwhile; returns what
    /// it was. A slot that its name has lost while it was idle is looked for again.
    ///
    /// # Errors
    ///
    /// The value, if `change` lets it be.
    pub fn change(
        &self,
        slot: &Slot,
        now: ProcessingTime,
        change: impl Fn(u64) -> Option<u64>,
    ) -> Result<u64, u64> {
        loop {
            if !self.has(slot) {
                self.find_again(slot, now);
            }
            match self.try_change(slot, self.name_at(slot), &change) {
                Some(changed) => return changed,
                None => self.find_again(slot, now),
            }
        }
    }

    /// Does so if the slot is still that of its name; a value that is long past needs no correction.
    pub fn correct(&self, slot: &Slot, change: impl Fn(u64) -> u64) {
        self.try_change(slot, slot.name.get(), &|word| Some(change(word)));
    }

    /// Changes the value of a slot as long as it has this name.
    fn try_change(
        &self,
        slot: &Slot,
        name: u64,
        change: &impl Fn(u64) -> Option<u64>,
    ) -> Option<Result<u64, u64>> {
        let value = &self.words()[slot.at()];
        loop {
            let word = value.load(Ordering::Acquire);
            // Who gives it away changes the value before the name, and again afterwards.
            if word == GIVEN_AWAY || self.name_at(slot) != name {
                return None;
            }
            let Some(changed) = change(word) else { return Some(Err(word)) };
            let (taken, order) = (Ordering::AcqRel, Ordering::Relaxed);
            if value.compare_exchange_weak(word, changed, taken, order).is_ok() {
                return Some(Ok(word));
            }
        }
    }

    /// Without another one it goes on with the slot as it is: two names that share a value are never
    /// above the limit of either.
    #[cold]
    fn find_again(&self, slot: &Slot, now: ProcessingTime) {
        let found = if slot.spare {
            self.find_spare(slot.name, slot.terms, now)
        } else {
            match self.find(0, slot.name, slot.terms) {
                Err(PageError::Full) => self.take_idle(slot.name, slot.terms, now),
                found => found,
            }
        };
        if let Ok(at) = found {
            slot.at.store(at, Ordering::Relaxed);
        }
    }

    #[inline]
    fn name_at(&self, slot: &Slot) -> u64 {
        self.words()[slot.at() - 2].load(Ordering::Acquire)
    }

    #[inline]
    fn has(&self, slot: &Slot) -> bool {
        self.name_at(slot) == slot.name.get()
    }

    /// Returns the value of a slot; zero before anybody has set it.
    #[inline]
    pub fn value(&self, slot: &Slot) -> u64 {
        self.words()[slot.at()].load(Ordering::Acquire)
    }

    /// Returns the count that belongs to the value of a slot.
    #[inline]
    pub fn count(&self, slot: &Slot) -> &AtomicU64 {
        &self.words()[slot.at() + 1]
    }

    /// Returns the slot of a name that has one.
    pub fn known_slot(&self, name: NonZeroU64) -> Option<Slot> {
        let name_at = |at: usize| self.words()[at - 2].load(Ordering::Acquire);
        let at = places(0, name).find(|at| [0, name.get()].contains(&name_at(*at)))?;
        let terms = NonZeroU64::new(self.words()[at - 1].load(Ordering::Acquire))?;
        (name_at(at) == name.get()).then(|| Slot {
            at: AtomicUsize::new(at),
            name,
            terms,
            spare: false,
        })
    }

    /// Returns how often terms were changed that belong to slots of this page.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.words()[1].load(Ordering::Acquire)
    }

    /// Says that some were.
    pub fn note_change(&self) {
        self.words()[1].fetch_add(1, Ordering::AcqRel);
    }

    #[inline]
    fn words(&self) -> &[AtomicU64; WORDS] {
        #[expect(clippy::cast_ptr_alignment, reason = "mappings begin at a page of memory")]
        let words = self.map.as_mut_ptr().cast::<[AtomicU64; WORDS]>();
        // SAFETY: the mapping has as many bytes (checked when it was opened, and nobody makes the
        // file shorter), is aligned to a page of memory, and lives as long as `self`. It is only
        // touched through atomics, here and in other processes.
        #[expect(unsafe_code, reason = "memory that processes share has no owner to borrow from")]
        unsafe {
            &*words
        }
    }
}

/// Where the value of a name is in its page.
#[derive(Debug)]
pub struct Slot {
    /// Another one from time to time: see [`SharedPage::change`].
    at: AtomicUsize,
    name: NonZeroU64,
    terms: NonZeroU64,
    spare: bool,
}

impl Slot {
    #[inline]
    fn at(&self) -> usize {
        self.at.load(Ordering::Relaxed)
    }
}

/// Returns where the values of slots are, from place `least` on, in the order in which a name looks at
/// them.
fn places(least: usize, name: NonZeroU64) -> impl Iterator<Item = usize> {
    #[expect(clippy::cast_possible_truncation, reason = "less than the slots")]
    let first = least + (name.get() % (SLOTS - least) as u64) as usize;
    (first..SLOTS).chain(least..first).map(|it| HEADER + it * SLOT + 2)
}

/// Writes `value` into a word that is zero; returns what it has then.
fn claim(word: &AtomicU64, value: NonZeroU64) -> u64 {
    // Mostly it is taken, and to try to write is dear where others read.
    let known = word.load(Ordering::Acquire);
    if known != 0 {
        return known;
    }
    match word.compare_exchange(0, value.get(), Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => value.get(),
        Err(found) => found,
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// Returns whether a file is the one at `path`, which somebody else may have removed.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    match fs::metadata(path) {
        Ok(there) => Ok(there.ino() == file.metadata()?.ino()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether a file is a page of this layout.
fn is_page(file: &File) -> io::Result<bool> {
    // A file that is shorter would end the process when it is touched.
    if file.metadata()?.len() != (WORDS * size_of::<u64>()) as u64 {
        return Ok(false);
    }
    let mut magic = [0; size_of::<u64>()];
    file.read_exact_at(&mut magic, 0)?;
    Ok(u64::from_ne_bytes(magic) == MAGIC)
}

/// Removes pages, and what is beside them, that nobody has opened for a week and nobody has open.
///
/// What cannot be removed stays: nothing depends on it.
fn remove_old(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_ours = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
        let changed = entry.metadata().and_then(|it| it.modified());
        let is_old = changed.is_ok_and(|it| it.elapsed().is_ok_and(|age| age > KEPT));
        if !is_ours || !is_old {
            continue;
        }
        let Ok(file) = open_file(&path) else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            drop(fs::remove_file(&path));
        }
    }
}

/// Makes a whole page beside `path` and links it there, so that nobody sees half of one.
fn make_page(path: &Path) -> io::Result<()> {
    /// Of the pages that this process has made.
    static COUNT: AtomicU64 = AtomicU64::new(0);

    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}-{count}", process::id()));
    let draft = PathBuf::from(draft);
    // One of a process that had the same number and was killed.
    drop(fs::remove_file(&draft));
    let file =
        OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&draft)?;
    // All of it is written, zeros too: a hole for which the disk has no room would end the process
    // when it is touched.
    let mut words = vec![0; WORDS];
    words[0] = MAGIC;
    let bytes: Vec<u8> = words.into_iter().flat_map(u64::to_ne_bytes).collect();
    let made = io::Write::write_all(&mut &file, &bytes).and_then(|()| fs::hard_link(&draft, path));
    fs::remove_file(&draft)?;
    match made {
        // Another process was faster.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}
