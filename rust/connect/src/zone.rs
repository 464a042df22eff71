// SPDX-License-Identifier: Apache-2.0
//! Time zones as Spark names them, with the answers that Java gives.
//!
//! The rules of the session's zone come with the plan ([`learn`]), from the Java that runs the query:
//! databases of different years have different rules. Those of all others are part of the crate, so
//! that every executor has the same.

use std::collections::HashMap;
use std::sync::{LazyLock, PoisonError, RwLock};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneDatabase};

const MICROS_PER_SECOND: i64 = 1_000_000;
/// After 400 years the calendar repeats, days of the week included, and the rules of a zone that
/// still hold repeat with it.
const MICROS_PER_CYCLE: i64 = 146_097 * 86_400 * MICROS_PER_SECOND;
/// Microseconds from 1970 within which jiff answers: years -9610 to 9570.
const KNOWN: i64 = 19 * MICROS_PER_CYCLE;
/// The largest offset that Java has: 18 hours.
const MOST_SECONDS: i32 = 18 * 3600;

/// Names of Java that the time zone database does not have.
const SHORT_NAMES: [(&str, &str); 28] = [
    ("ACT", "Australia/Darwin"),
    ("AET", "Australia/Sydney"),
    ("AGT", "America/Argentina/Buenos_Aires"),
    ("ART", "Africa/Cairo"),
    ("AST", "America/Anchorage"),
    ("BET", "America/Sao_Paulo"),
    ("BST", "Asia/Dhaka"),
    ("CAT", "Africa/Harare"),
    ("CNT", "America/St_Johns"),
    ("CST", "America/Chicago"),
    ("CTT", "Asia/Shanghai"),
    ("EAT", "Africa/Addis_Ababa"),
    ("ECT", "Europe/Paris"),
    ("EST", "-05:00"),
    ("HST", "-10:00"),
    ("IET", "America/Indiana/Indianapolis"),
    ("IST", "Asia/Kolkata"),
    ("JST", "Asia/Tokyo"),
    ("MIT", "Pacific/Apia"),
    ("MST", "-07:00"),
    ("NET", "Asia/Yerevan"),
    ("NST", "Pacific/Auckland"),
    ("PLT", "Asia/Karachi"),
    ("PNT", "America/Phoenix"),
    ("PRT", "America/Puerto_Rico"),
    ("PST", "America/Los_Angeles"),
    ("SST", "Pacific/Guadalcanal"),
    ("VST", "Asia/Ho_Chi_Minh"),
];

/// What Spark has said of zones. The tasks of a process are of one application, which has one
/// database of zones.
static LEARNT: LazyLock<RwLock<HashMap<String, TimeZone>>> = LazyLock::new(RwLock::default);

/// Has the zones of this name that are parsed from now on follow the rules of a `TZif` file.
///
/// # Errors
///
/// The file is damaged.
pub fn learn(name: &str, tzif: &[u8]) -> Result<(), String> {
    let rules = TimeZone::tzif(name, tzif)
        .map_err(|error| format!("the rules of the time zone `{name}` are damaged: {error}"))?;
    LEARNT.write().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), rules);
    Ok(())
}

fn learnt(name: &str) -> Option<TimeZone> {
    LEARNT.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
}

/// A time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(Rules);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rules {
    /// Seconds to the east of UTC.
    Fixed(i32),
    Region(TimeZone),
}

impl Zone {
    /// UTC.
    pub const UTC: Self = Self(Rules::Fixed(0));

    /// Finds the zone that Spark means by a name: that of a region, `UTC`, `Z`, `+02:00`,
    /// `GMT+8`, `UTC+01:00` and Java's short names.
    ///
    /// # Errors
    ///
    /// There is no such zone.
    pub fn parse(name: &str) -> Result<Self, String> {
        Self::find(name).ok_or_else(|| {
            format!(
                "`{name}` is not a time zone; give a name such as `Europe/Berlin`, `UTC` or \
                 `+02:00`"
            )
        })
    }

    fn find(name: &str) -> Option<Self> {
        let said = name;
        let short = SHORT_NAMES.iter().find(|(short, _)| *short == name);
        let name = short.map_or(name, |(_, long)| long);
        if matches!(name, "Z" | "UTC" | "GMT" | "UT") {
            return Some(Self::UTC);
        }
        if name.starts_with(['+', '-']) {
            return offset_of(name).map(|seconds| Self(Rules::Fixed(seconds)));
        }
        // `UTC` before `UT`, which it starts with.
        let after = ["UTC", "GMT", "UT"].iter().find_map(|prefix| name.strip_prefix(prefix));
        if let Some(offset) = after.filter(|after| after.starts_with(['+', '-'])) {
            return offset_of(offset).map(|seconds| Self(Rules::Fixed(seconds)));
        }
        if let Some(rules) = learnt(said) {
            return Some(Self(Rules::Region(rules)));
        }
        let found = TimeZoneDatabase::bundled().get(name).ok()?;
        // The database does not mind the case of letters, Java does.
        (found.iana_name() == Some(name)).then_some(Self(Rules::Region(found)))
    }

    /// Returns the microseconds since 1970 in UTC at which clocks here show `local_micros`.
    ///
    /// As Java does: a time that clocks skip is moved on by what they skip, and of two instants
    /// with the same time the earlier one is taken. `None` if it is out of range.
    #[inline]
    pub fn to_instant(&self, local_micros: i64) -> Option<i64> {
        let seconds = match &self.0 {
            Rules::Fixed(seconds) => *seconds,
            Rules::Region(zone) => {
                let offset = zone.to_ambiguous_timestamp(date_time(local_micros)).offset();
                match offset {
                    AmbiguousOffset::Unambiguous { offset } => offset.seconds(),
                    AmbiguousOffset::Gap { before, .. } | AmbiguousOffset::Fold { before, .. } => {
                        before.seconds()
                    }
                }
            }
        };
        local_micros.checked_sub(i64::from(seconds) * MICROS_PER_SECOND)
    }

    /// Returns the seconds that clocks here are ahead of UTC at an instant.
    #[inline]
    pub fn offset_seconds(&self, instant_micros: i64) -> i32 {
        match &self.0 {
            Rules::Fixed(seconds) => *seconds,
            Rules::Region(zone) => zone.to_offset(timestamp(instant_micros)).seconds(),
        }
    }
}

/// Returns the time stamp, or the one some whole cycles nearer to 1970 that the same rules hold at.
fn timestamp(micros: i64) -> Timestamp {
    let near = if micros.unsigned_abs() < KNOWN.unsigned_abs() {
        micros
    } else {
        // Eighteen cycles or more away from 1970, on the same side.
        let cycles = micros / MICROS_PER_CYCLE;
        micros - (cycles - cycles.signum() * 18) * MICROS_PER_CYCLE
    };
    Timestamp::from_microsecond(near).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn date_time(local_micros: i64) -> DateTime {
    Offset::UTC.to_datetime(timestamp(local_micros))
}

/// Reads `+h`, `+hh`, `+h:m`, `+h:mm`, `+hh:m`, `+hh:mm`, `+hhmm`, `+hh:mm:ss` or `+hhmmss` as seconds.
fn offset_of(text: &str) -> Option<i32> {
    let (sign, digits) = match text.as_bytes() {
        [b'+', digits @ ..] => (1, digits),
        [b'-', digits @ ..] => (-1, digits),
        _ => return None,
    };
    let one = |digits: &[u8]| match digits {
        [digit] if digit.is_ascii_digit() => Some(i32::from(digit - b'0')),
        [ten, digit] if ten.is_ascii_digit() && digit.is_ascii_digit() => {
            Some(i32::from(ten - b'0') * 10 + i32::from(digit - b'0'))
        }
        _ => None,
    };
    let (hours, minutes, seconds) = match digits {
        [_] | [_, _] => (one(digits)?, 0, 0),
        [_, b':', _] | [_, b':', _, _] => (one(&digits[..1])?, one(&digits[2..])?, 0),
        [_, _, b':', _] | [_, _, b':', _, _] => (one(&digits[..2])?, one(&digits[3..])?, 0),
        [_, _, _, _] => (one(&digits[..2])?, one(&digits[2..])?, 0),
        [_, b':', _, _, b':', _, _] => {
            (one(&digits[..1])?, one(&digits[2..4])?, one(&digits[5..])?)
        }
        [_, _, b':', _, _, b':', _, _] => {
            (one(&digits[..2])?, one(&digits[3..5])?, one(&digits[6..])?)
        }
        [_, _, _, _, _, _] => (one(&digits[..2])?, one(&digits[2..4])?, one(&digits[4..])?),
        _ => return None,
    };
    let total = hours * 3600 + minutes * 60 + seconds;
    (minutes < 60 && seconds < 60 && total <= MOST_SECONDS).then_some(sign * total)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3600 * MICROS_PER_SECOND;

    /// Microseconds of a date and time as if it were in UTC.
    fn at(text: &str) -> i64 {
        let at: DateTime = text.parse().unwrap();
        at.to_zoned(TimeZone::UTC).unwrap().timestamp().as_microsecond()
    }

    fn new_york() -> Zone {
        Zone::parse("America/New_York").unwrap()
    }

    #[test]
    fn a_time_that_clocks_skip_is_moved_on_by_what_they_skip() {
        let local = at("2024-03-10T02:30:00");
        assert_eq!(new_york().to_instant(local), Some(at("2024-03-10T07:30:00")));
    }

    #[test]
    fn of_two_instants_with_the_same_time_the_earlier_is_taken() {
        let local = at("2024-11-03T01:30:00");
        assert_eq!(new_york().to_instant(local), Some(at("2024-11-03T05:30:00")));
        assert_eq!(new_york().offset_seconds(at("2024-11-03T06:30:00")), -5 * 3600);
    }

    #[test]
    fn offsets_before_standard_time_have_seconds() {
        assert_eq!(new_york().offset_seconds(at("1800-01-01T00:00:00")), -(4 * 3600 + 56 * 60 + 2));
        assert_eq!(new_york().offset_seconds(i64::MIN), -(4 * 3600 + 56 * 60 + 2));
    }

    #[test]
    fn rules_hold_in_years_beyond_9999() {
        let summer = at("2024-07-01T12:00:00");
        for cycles in [19, 20, 40, 700] {
            let later = summer + cycles * MICROS_PER_CYCLE;
            assert_eq!(new_york().to_instant(later), Some(later + 4 * HOUR), "{cycles}");
            assert_eq!(new_york().offset_seconds(later + 4 * HOUR), -4 * 3600, "{cycles}");
        }
        assert_eq!(new_york().offset_seconds(at("9999-12-30T00:00:00")), -5 * 3600);
        assert_eq!(new_york().to_instant(i64::MAX), None);
        assert_eq!(Zone::parse("+01:00").unwrap().to_instant(i64::MIN), None);
    }

    #[test]
    fn zones_have_the_names_that_spark_takes() {
        let offsets = [
            ("Z", 0),
            ("UTC", 0),
            ("GMT", 0),
            ("Etc/UTC", 0),
            ("+02:00", 7200),
            ("-2:30", -9000),
            ("+2", 7200),
            ("-0230", -9000),
            ("+01:02:03", 3723),
            ("GMT+8", 28800),
            ("UTC+01:00", 3600),
            ("UT-01:00", -3600),
            ("UTC+1:5", 3900),
            ("GMT0", 0),
            ("Etc/GMT+5", -18000),
            ("EST", -18000),
            ("IST", 19800),
            ("Asia/Kolkata", 19800),
            ("Asia/Calcutta", 19800),
            ("+18:00", 64800),
        ];
        for (name, seconds) in offsets {
            assert_eq!(Zone::parse(name).unwrap().offset_seconds(0), seconds, "{name}");
        }
        for name in ["", "+", "+19:00", "+18:01", "+01:60", "Mars/Olympus", "utc", "asia/kolkata"] {
            assert!(Zone::parse(name).is_err(), "{name}");
        }
    }

    #[test]
    fn damaged_rules_are_refused_by_name() {
        let error = learn("Test/Damaged", b"TZif3").unwrap_err();
        assert!(
            error.starts_with("the rules of the time zone `Test/Damaged` are damaged:"),
            "{error}"
        );
        assert!(Zone::parse("Test/Damaged").is_err());
    }
}
