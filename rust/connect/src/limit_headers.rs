// SPDX-License-Identifier: Apache-2.0
//! What the headers of a response say of the limits of its service.
//!
//! | header | who sends it | form |
//! |---|---|---|
//! | `Retry-After` | RFC 9110 | seconds, some with a fraction, or a date |
//! | `retry-after-ms` | `OpenAI`, Azure | milliseconds |
//! | `x-ratelimit-{remaining,reset}-{requests,tokens}` | `OpenAI` and many after it | `6m0s`, `120ms`, `7.5` |
//! | `x-ratelimit-{remaining,reset}-{requests-day,tokens-minute}` | Cerebras | seconds |
//! | `x-ratelimit-{remaining,reset}` | GitHub and many others | seconds, or seconds since 1970 |
//! | `anthropic-ratelimit-..-{remaining,reset}` | Anthropic | RFC 3339 |
//! | `RateLimit` | drafts of the IETF | `"name";r=50;t=30`, or `remaining=50, reset=30` |
//! | `RateLimit-{Remaining,Reset}` | earlier drafts | seconds |
//!
//! Those of requests and tokens say when a bucket will be full, the others when a window ends.
//! Points in time are those of the service's clock, which its `Date` tells. What cannot be read is
//! left out: headers are advice. A limit with a size of 0 is left out, too.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use jiff::Timestamp;
use sparkawait_core::policy::{Counted, LimitLeft, Renewal};

/// What a response says of the limits of its service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitHeaders {
    /// When it wants to be asked again.
    pub retry_after: Option<Duration>,
    /// The limits it tells of.
    pub left: Vec<LimitLeft>,
}

/// What a service sends of one of its limits.
struct Names {
    remaining: &'static str,
    reset: &'static str,
    /// How much it is at most; a service that has no such limit may send nothing of it, and nothing
    /// left.
    limit: &'static str,
    counted: Counted,
    renewal: Renewal,
}

/// Makes names that differ in one word, which stands between two texts.
macro_rules! names {
    ($before:literal, $behind:literal, $counted:ident, $renewal:ident) => {
        Names {
            remaining: concat!($before, "remaining", $behind),
            reset: concat!($before, "reset", $behind),
            limit: concat!($before, "limit", $behind),
            counted: Counted::$counted,
            renewal: Renewal::$renewal,
        }
    };
}

const NAMES: [Names; 10] = [
    names!("x-ratelimit-", "-requests", Requests, Evenly),
    names!("x-ratelimit-", "-tokens", Tokens, Evenly),
    names!("x-ratelimit-", "-requests-day", Requests, AtOnce),
    names!("x-ratelimit-", "-tokens-minute", Tokens, AtOnce),
    names!("x-ratelimit-", "", Requests, AtOnce),
    names!("ratelimit-", "", Requests, AtOnce),
    names!("anthropic-ratelimit-requests-", "", Requests, Evenly),
    names!("anthropic-ratelimit-tokens-", "", Tokens, Evenly),
    names!("anthropic-ratelimit-input-tokens-", "", Tokens, Evenly),
    names!("anthropic-ratelimit-output-tokens-", "", Tokens, Evenly),
];

/// The only one that is a list, which may come in parts.
const LIST: &str = "ratelimit";

/// Returns whether a header by this name, in lower case, tells of a limit.
pub fn tells_of_limit(name: &str) -> bool {
    name.contains("ratelimit")
}

impl LimitHeaders {
    /// Reads those of a response that came just now.
    pub fn of_response(headers: &HeaderMap) -> Self {
        let header = |name: &str| {
            let mut values = headers.get_all(name).iter().filter_map(|it| it.to_str().ok());
            let first = Cow::Borrowed(values.next()?);
            let rest = values.filter(|_| name == LIST);
            Some(rest.fold(first, |all, it| Cow::Owned(format!("{all}, {it}"))))
        };
        Self::read(header, SystemTime::now())
    }

    /// Reads what there is; `header` returns the value of one by its name in lower case.
    ///
    /// The present is what the service says it is, or else `now`: it has told points in time by the
    /// same clock.
    pub fn read<'a>(header: impl Fn(&str) -> Option<Cow<'a, str>>, now: SystemTime) -> Self {
        let now = header("date").and_then(|it| date(it.trim())).unwrap_or(now);
        let millis = header("retry-after-ms").and_then(|it| decimal(it.trim()));
        let retry_after = millis
            .map(|it| it / 1000)
            .or_else(|| header("retry-after").and_then(|it| retry_after(&it, now)));
        let mut left = Vec::new();
        for Names { remaining, reset, limit, counted, renewal } in NAMES {
            let told = header(remaining)
                .and_then(|it| it.trim().parse().ok())
                .zip(header(reset).and_then(|it| resets_in(it.trim(), now)))
                .filter(|_| header(limit).is_none_or(|it| !is_none(it.trim())));
            left.extend(told.map(|(remaining, renewed_in)| LimitLeft {
                counted,
                remaining,
                renewed_in,
                renewal,
            }));
        }
        if let Some(text) = header(LIST) {
            left.extend(draft(&text));
        }
        // Some services send no time, and nothing left, for a limit that they do not have.
        left.retain(|it| !it.renewed_in.is_zero());
        Self { retry_after, left }
    }

    /// Returns of what counts requests, and of what counts tokens, the limit with the least left.
    pub fn tightest(&self) -> impl Iterator<Item = LimitLeft> {
        let of = |counted| {
            let limits = self.left.iter().filter(move |it| it.counted == counted);
            limits.min_by_key(|it| it.remaining).copied()
        };
        [Counted::Requests, Counted::Tokens].into_iter().filter_map(of)
    }

    /// Returns when a call that was refused is worth another attempt, if the response says so.
    pub fn delay(&self) -> Option<Duration> {
        let used_up = self.left.iter().filter(|it| it.remaining == 0).map(|it| it.renewed_in);
        self.retry_after.or_else(|| used_up.max())
    }
}

/// Reads `Retry-After`: seconds, or a date; a date that has passed gives `None`.
pub fn retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    if let Some(seconds) = decimal(text) {
        return Some(seconds);
    }
    Some(date(text)?.duration_since(now).unwrap_or_default())
}

/// Reads a date as HTTP writes it.
fn date(text: &str) -> Option<SystemTime> {
    // Its reader takes anything for the blank in front of the time.
    let words = text.split(' ').count();
    httpdate::parse_http_date(text).ok().filter(|_| words >= 4)
}

/// Reads a number of seconds, without a sign, as digits with a point among them at most. One that is
/// too large is the largest there is (RFC 9111, 1.2.2).
fn decimal(text: &str) -> Option<Duration> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |it: &str| it.bytes().all(|it| it.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let nanos: u32 = format!("{fraction:0<9.9}").parse().ok()?;
    Some(Duration::new(whole.parse().unwrap_or(u64::MAX), nanos))
}

/// Returns whether the size of a limit says that there is none.
fn is_none(size: &str) -> bool {
    size.parse().is_ok_and(|it: i64| it <= 0)
}

/// Reads when a limit starts to count again: a duration, or a point in time.
fn resets_in(text: &str, now: SystemTime) -> Option<Duration> {
    /// More seconds than that, 31 years, are a point in time.
    const SINCE_1970: u64 = 1_000_000_000;

    let until = |at: SystemTime| at.duration_since(now).unwrap_or_default();
    if let Some(seconds) = decimal(text) {
        let is_point = seconds.as_secs() >= SINCE_1970;
        let is_millis = seconds.as_secs() >= SINCE_1970 * 1000;
        let seconds = if is_millis { seconds / 1000 } else { seconds };
        return if is_point {
            SystemTime::UNIX_EPOCH.checked_add(seconds).map(until)
        } else {
            Some(seconds)
        };
    }
    units(text).or_else(|| {
        let at: Timestamp = text.parse().ok()?;
        Some(until(at.into()))
    })
}

/// Reads `1h2m3.5s` as the language Go writes durations.
fn units(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut sum = Duration::ZERO;
    while !rest.is_empty() {
        let number = rest.find(|it: char| !it.is_ascii_digit() && it != '.')?;
        let (count, tail) = rest.split_at(number);
        let end = tail.find(|it: char| it.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        let count = decimal(count)?;
        let part = match unit {
            "h" => count.checked_mul(3600)?,
            "m" => count.checked_mul(60)?,
            "s" => count,
            "ms" => count / 1_000,
            "us" | "µs" => count / 1_000_000,
            "ns" => count / 1_000_000_000,
            _ => return None,
        };
        (sum, rest) = (sum.checked_add(part)?, tail);
    }
    (!text.is_empty()).then_some(sum)
}

/// Reads the drafts of `RateLimit`: a list of limits, or one.
fn draft(text: &str) -> Vec<LimitLeft> {
    let found = |parts: &[&str], names: [&str; 2]| {
        let value = |name: &str| {
            let mut values = parts.iter().filter_map(|it| it.trim().split_once('='));
            values.find(|it| it.0 == name)?.1.parse().ok()
        };
        let (remaining, seconds) = (value(names[0])?, value(names[1])?);
        let (renewed_in, renewal) = (Duration::from_secs(seconds), Renewal::AtOnce);
        Some(LimitLeft { counted: Counted::Requests, remaining, renewed_in, renewal })
    };
    let parts: Vec<&str> = text.split(',').collect();
    if let Some(one) = found(&parts, ["remaining", "reset"]) {
        return vec![one];
    }
    let limits = parts.iter().map(|it| it.split(';').collect::<Vec<_>>());
    limits.filter_map(|it| found(&it, ["r", "t"])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> SystemTime {
        httpdate::parse_http_date("Sat, 21 Nov 2026 06:00:00 GMT").unwrap()
    }

    fn read(headers: &[(&str, &'static str)]) -> LimitHeaders {
        let find = |name: &str| headers.iter().find(|it| it.0 == name).map(|it| it.1.into());
        LimitHeaders::read(find, now())
    }

    fn left(headers: &[(&str, &'static str)]) -> Vec<(Counted, u64, Duration)> {
        let left = read(headers).left;
        left.iter().map(|it| (it.counted, it.remaining, it.renewed_in)).collect()
    }

    #[test]
    fn retry_after_is_read_as_seconds_and_as_a_date() {
        let delay = |text| retry_after(text, now());
        assert_eq!(delay("7"), Some(Duration::from_secs(7)));
        assert_eq!(delay(" 1.5 "), Some(Duration::from_millis(1500)));
        assert_eq!(delay("Sat, 21 Nov 2026 06:00:30 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(delay("Sat, 21 Nov 2026 05:00:00 GMT"), Some(Duration::ZERO));
        assert_eq!(delay("Saturday, 21-Nov-26 06:00:30 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(delay("99999999999999999999").unwrap().as_secs(), u64::MAX);
        for text in ["Saturday, 21-Nov-26!06:00:30 GMT", "soon", "-1", "+1", "", ".5", "1e3", "inf"]
        {
            assert_eq!(delay(text), None, "{text}");
        }
    }

    #[test]
    fn milliseconds_say_more_than_seconds() {
        let delay = |headers: &[_]| read(headers).delay();
        let both = [("retry-after-ms", "250"), ("retry-after", "1")];
        assert_eq!(delay(&both), Some(Duration::from_millis(250)));
        let odd = [("retry-after-ms", "soon"), ("retry-after", "1")];
        assert_eq!(delay(&odd), Some(Duration::from_secs(1)));
    }

    #[test]
    fn limits_of_requests_and_of_tokens_are_told_apart() {
        let headers = [
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", "1m2.5s"),
            ("x-ratelimit-remaining-tokens", "0"),
            ("x-ratelimit-reset-tokens", "120ms"),
        ];
        let expected = [
            (Counted::Requests, 59, Duration::from_millis(62_500)),
            (Counted::Tokens, 0, Duration::from_millis(120)),
        ];
        assert_eq!(left(&headers), expected);
        // A refused call waits for the limit that is used up.
        assert_eq!(read(&headers).delay(), Some(Duration::from_millis(120)));
    }

    #[test]
    fn a_reset_is_a_duration_or_a_point_in_time() {
        let reset = |text| {
            let told = left(&[("x-ratelimit-remaining", "3"), ("x-ratelimit-reset", text)]);
            told.first().map(|it| it.2.as_millis())
        };
        assert_eq!(reset("30"), Some(30_000));
        assert_eq!(reset("7.66s"), Some(7_660));
        assert_eq!(reset("1h0m0.25s"), Some(3_600_250));
        // 21 November 2026, 06:00:10
        assert_eq!(reset("1795240810"), Some(10_000));
        assert_eq!(reset("1795240810000"), Some(10_000));
        assert_eq!(reset("2026-11-21T06:00:10Z"), Some(10_000));
        assert_eq!(reset("2026-11-21T07:00:10+01:00"), Some(10_000));
        for text in ["0", "2020-01-01T00:00:00Z", "1400000000", "-1", "soon", "5x", "s", "1.2.3"] {
            assert_eq!(reset(text), None, "{text}");
        }
    }

    #[test]
    fn points_in_time_are_those_of_the_clock_of_the_service() {
        // It is an hour late.
        let reset = |told| {
            let headers = [
                ("date", "Sat, 21 Nov 2026 05:00:00 GMT"),
                ("x-ratelimit-remaining", "0"),
                ("x-ratelimit-reset", told),
            ];
            read(&headers).delay().map(|it| it.as_secs())
        };
        assert_eq!(reset("1795237220"), Some(20));
        assert_eq!(reset("2026-11-21T05:00:20Z"), Some(20));
        assert_eq!(reset("20"), Some(20));
        assert_eq!(reset("2026-11-21T04:59:59Z"), None);
        let retry = [
            ("date", "Sat, 21 Nov 2026 05:00:00 GMT"),
            ("retry-after", "Sat, 21 Nov 2026 05:00:20 GMT"),
        ];
        assert_eq!(read(&retry).delay(), Some(Duration::from_secs(20)));
    }

    #[test]
    fn limits_of_a_day_and_of_a_minute_end_with_them() {
        let headers = [
            ("x-ratelimit-limit-requests-day", "14400"),
            ("x-ratelimit-remaining-requests-day", "14350"),
            ("x-ratelimit-reset-requests-day", "33011.382867097855"),
            ("x-ratelimit-remaining-tokens-minute", "62000"),
            ("x-ratelimit-reset-tokens-minute", "11.382867097854614"),
        ];
        let left = read(&headers).left;
        let told: Vec<_> = left.iter().map(|it| (it.counted, it.remaining, it.renewal)).collect();
        let (requests, tokens) = (Counted::Requests, Counted::Tokens);
        assert_eq!(told, [(requests, 14_350, Renewal::AtOnce), (tokens, 62_000, Renewal::AtOnce)]);
        assert_eq!(left[1].renewed_in.as_millis(), 11_382);
    }

    #[test]
    fn a_list_may_come_in_parts() {
        let mut headers = HeaderMap::new();
        for part in [r#""minute";r=50;t=30"#, r#""day";r=9;t=4000"#] {
            headers.append("ratelimit", part.parse().unwrap());
            headers.append("x-ratelimit-remaining", "7".parse().unwrap());
            headers.append("x-ratelimit-reset", "30".parse().unwrap());
        }
        let left = LimitHeaders::of_response(&headers).left;
        assert_eq!(left.iter().map(|it| it.remaining).collect::<Vec<_>>(), [7, 50, 9]);
    }

    #[test]
    fn what_is_left_is_no_less_than_nothing() {
        let headers = [("x-ratelimit-remaining-tokens", "-1"), ("x-ratelimit-reset-tokens", "10s")];
        assert_eq!(left(&headers), []);
        assert_eq!(read(&headers).delay(), None);
    }

    #[test]
    fn a_limit_that_is_nothing_is_none() {
        for size in ["0", "-1"] {
            let headers = [
                ("x-ratelimit-limit-requests", size),
                ("x-ratelimit-remaining-requests", "0"),
                ("x-ratelimit-reset-requests", "10s"),
            ];
            assert_eq!(left(&headers), []);
        }
    }

    #[test]
    fn of_limits_that_count_alike_the_one_with_the_least_left_is_told() {
        let headers = read(&[
            ("ratelimit", r#""minute";r=50;t=30, "day";r=9;t=4000"#),
            ("anthropic-ratelimit-input-tokens-remaining", "7000"),
            ("anthropic-ratelimit-input-tokens-reset", "2026-11-21T06:01:00Z"),
            ("anthropic-ratelimit-output-tokens-remaining", "300"),
            ("anthropic-ratelimit-output-tokens-reset", "2026-11-21T06:00:10Z"),
        ]);
        let told: Vec<_> = headers.tightest().map(|it| (it.counted, it.remaining)).collect();
        assert_eq!(told, [(Counted::Requests, 9), (Counted::Tokens, 300)]);
        assert_eq!(headers.tightest().last().map(|it| it.renewal), Some(Renewal::Evenly));
    }

    #[test]
    fn points_in_time_of_anthropic_are_read() {
        let headers = [
            ("anthropic-ratelimit-input-tokens-remaining", "7000"),
            ("anthropic-ratelimit-input-tokens-reset", "2026-11-21T06:01:00Z"),
        ];
        assert_eq!(left(&headers), [(Counted::Tokens, 7000, Duration::from_secs(60))]);
    }

    #[test]
    fn all_drafts_of_the_ietf_are_read() {
        let of = |text| left(&[("ratelimit", text)]);
        let minute = (Counted::Requests, 50, Duration::from_secs(30));
        assert_eq!(of(r#""default";r=50;t=30"#), [minute]);
        assert_eq!(of("limit=100, remaining=50, reset=30"), [minute]);
        let day = (Counted::Requests, 9, Duration::from_secs(4000));
        assert_eq!(of(r#""m";r=50;t=30, "d";r=9;t=4000"#), [minute, day]);
        assert_eq!(of("nonsense, r=, ;;t=x"), []);
        let early = [("ratelimit-remaining", "50"), ("ratelimit-reset", "30")];
        assert_eq!(left(&early), [minute]);
    }
}
