// SPDX-License-Identifier: Apache-2.0
//! What a worker and a limit say to each other.

/// Numbers are below 2^53, so that doubles hold them.
pub(crate) const MOST: u64 = 1 << 53;

/// What a limit is. Amounts are whole numbers of permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Terms {
    /// Permits in `period` microseconds, `burst` of them at once.
    Rate {
        /// How many there are in a period.
        permits: u64,
        /// Microseconds.
        period: u64,
        /// How many may be saved.
        burst: u64,
    },
    /// So many permits, and no more.
    Budget(u64),
    /// So many calls at a time.
    Calls(u64),
}

impl Terms {
    /// Returns the kind and three numbers, as the script takes them.
    pub(crate) const fn words(self) -> (&'static str, [u64; 3]) {
        match self {
            Self::Rate { permits, period, burst } => ("rate", [permits, period, burst]),
            Self::Budget(total) => ("budget", [total, 0, 0]),
            Self::Calls(most) => ("calls", [most, 0, 0]),
        }
    }

    /// Returns what tells them apart from others.
    pub(crate) fn text(self) -> String {
        let (kind, [a, b, c]) = self.words();
        format!("{kind} {a} {b} {c}")
    }

    /// Reads them; `None` for other words.
    fn of_words(kind: &str, numbers: &[&str]) -> Option<Self> {
        let [a, b, c] = numbers else { return None };
        Some(match (kind, number(a)?, number(b)?, number(c)?) {
            ("rate", permits @ 1.., period @ 1.., burst) => Self::Rate { permits, period, burst },
            ("budget", total, _, _) => Self::Budget(total),
            ("calls", most, _, _) => Self::Calls(most),
            _ => return None,
        })
    }

    /// Reads what [`text`](Self::text) has written.
    fn of_text(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let kind = words.next()?;
        Self::of_words(kind, &words.collect::<Vec<_>>())
    }

    /// Returns whether a limit that is the one may become the other.
    pub(crate) const fn is_alike(self, other: Self) -> bool {
        matches!(
            (self, other),
            (Self::Rate { .. }, Self::Rate { .. })
                | (Self::Budget(_), Self::Budget(_))
                | (Self::Calls(_), Self::Calls(_))
        )
    }
}

/// What a worker says, of one limit, for all of its tasks. Times are microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// Which worker it is.
    pub worker: String,
    /// Counts its exchanges. One that is sent again has the same number, and gets the same answer.
    pub number: u64,
    /// Permits that it has use for.
    pub want: u64,
    /// Fewer are of no use: what one call costs. At most `want`.
    pub least: u64,
    /// What the calls were charged that were settled since the last exchange.
    pub charged: u64,
    /// What they have cost.
    pub cost: u64,
    /// The `sum` of the first lease of these.
    pub since: u64,
    /// Permits of leases that no call has used in time; those of a rate just expire.
    pub back: u64,
    /// What the service says is left of a rate.
    pub left: Option<u64>,
    /// Whether a rate that nobody has asked before begins without what it could have saved.
    pub begins_empty: bool,
    /// Which change of the limit it knows; none: 0.
    pub knows: u64,
}

impl Exchange {
    /// Keeps numbers within what both servers take: one that is not read would be said for ever.
    pub(crate) fn bound(&mut self) {
        let Self { want, least, charged, cost, back, .. } = self;
        for each in [want, least, charged, cost, back].into_iter().chain(&mut self.left) {
            *each = (*each).min(MOST);
        }
    }

    /// Reads the arguments of the script: terms, what is said, and when. `None` where they are not such.
    pub(crate) fn read(arguments: &[&str]) -> Option<(Terms, Self, Option<u64>)> {
        let [now, kind, a, b, c, worker, said @ ..] = arguments else { return None };
        let now = if now.is_empty() { None } else { Some(number(now)?) };
        let terms = Terms::of_words(kind, &[a, b, c])?;
        let [count, want, least, charged, cost, since, back, left, empty, knows] = said else {
            return None;
        };
        let said = Self {
            worker: (*worker).to_owned(),
            number: number(count)?,
            want: number(want)?,
            least: number(least)?,
            charged: number(charged)?,
            cost: number(cost)?,
            since: number(since)?,
            back: number(back)?,
            left: if *left == "-1" { None } else { Some(number(left)?) },
            begins_empty: *empty == "1",
            knows: number(knows)?,
        };
        Some((terms, said, now))
    }

    /// Returns the arguments of the script at `now`; `None`: by the clock of the server.
    pub fn arguments(&self, terms: Terms, now: Option<u64>) -> [String; 16] {
        let (kind, [a, b, c]) = terms.words();
        let number = |it: u64| it.to_string();
        [
            now.map_or_else(String::new, number),
            kind.to_owned(),
            number(a),
            number(b),
            number(c),
            self.worker.clone(),
            number(self.number),
            number(self.want),
            number(self.least),
            number(self.charged),
            number(self.cost),
            number(self.since),
            number(self.back),
            self.left.map_or_else(|| "-1".to_owned(), number),
            u8::from(self.begins_empty).to_string(),
            number(self.knows),
        ]
    }
}

/// So many permits, for calls that begin within this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// How many: not less than was of use.
    pub amount: u64,
    /// A point that may lie ahead: a place in line.
    pub from: u64,
    /// Calls begin before this point.
    pub until: u64,
    /// What a rate has granted so far, this included, in time. Says which leases came later.
    pub sum: u64,
}

/// What a limit answers. Times are microseconds after the exchange, so that no clocks are compared: what
/// the worker saw between sending it and having its answer bounds when that was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// What was wanted, or some of it: in parts, first to last, where the limit saves little.
    Leases(Vec<Lease>),
    /// Nothing: the line is long. Ask again then.
    Again(u64),
    /// Nothing before somebody settles a call. Ask again then.
    OnSettle(u64),
    /// Never: so much is left of a budget, and nothing is in flight anywhere.
    Never(u64),
    /// Nothing was wanted.
    Noted,
    /// Of what does not refill: it does not know the worker, and so not what that holds. It has forgotten
    /// the limit, or the worker was silent for long.
    Lost,
    /// The limit has become something else. The worker does not know that yet, and nothing was granted.
    Set {
        /// Which change that was.
        version: u64,
        /// What it is.
        terms: Terms,
    },
    /// The limit of this name has other terms.
    OtherTerms(String),
}

impl Answer {
    /// Returns it as the script says it.
    pub fn words(&self) -> Vec<String> {
        let (name, numbers) = match self {
            Self::Leases(leases) => (
                "lease",
                leases.iter().flat_map(|it| [it.amount, it.from, it.until, it.sum]).collect(),
            ),
            Self::Again(at) => ("again", vec![*at]),
            Self::OnSettle(at) => ("settle", vec![*at]),
            Self::Never(left) => ("never", vec![*left]),
            Self::Noted => ("noted", vec![]),
            Self::Lost => ("lost", vec![]),
            Self::Set { version, terms } => {
                let (kind, numbers) = terms.words();
                let words = ["set", &version.to_string(), kind].map(str::to_owned);
                return words.into_iter().chain(numbers.map(|it| it.to_string())).collect();
            }
            Self::OtherTerms(terms) => return vec!["terms".to_owned(), terms.clone()],
        };
        std::iter::once(name.to_owned()).chain(numbers.iter().map(u64::to_string)).collect()
    }

    /// Reads what the script says; `None` for other words.
    pub fn of_words(words: &[String]) -> Option<Self> {
        let (name, rest) = words.split_first()?;
        if name == "terms" {
            return rest.first().cloned().map(Self::OtherTerms);
        }
        if let ("set", [version, kind, a, b, c]) = (name.as_str(), rest) {
            let terms = Terms::of_words(kind, &[a, b, c])?;
            return Some(Self::Set { version: number(version)?, terms });
        }
        let numbers: Vec<u64> = rest.iter().map(|it| it.parse().ok()).collect::<Option<_>>()?;
        Some(match (name.as_str(), numbers.as_slice()) {
            ("lease", _) => {
                let (leases, []) = numbers.as_chunks() else { return None };
                let lease =
                    |&[amount, from, until, sum]: &[u64; 4]| Lease { amount, from, until, sum };
                Self::Leases(leases.iter().map(lease).collect())
            }
            ("again", [at]) => Self::Again(*at),
            ("settle", [at]) => Self::OnSettle(*at),
            ("never", [left]) => Self::Never(*left),
            ("noted", []) => Self::Noted,
            ("lost", []) => Self::Lost,
            _ => return None,
        })
    }
}

/// What the owner of a job asks of a limit: what it is, and, with `anew`, to become that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// What tasks say it is.
    pub said: Terms,
    /// What it shall be from now on.
    pub anew: Option<Terms>,
    /// Whether a rate that nobody has asked before begins without what it could have saved.
    pub begins_empty: bool,
}

impl Order {
    /// Reads the arguments of the script, and when they are carried out. `None` where they are not such.
    pub(crate) fn read(arguments: &[&str]) -> Option<(Self, Option<u64>)> {
        let [now, kind, a, b, c, empty, anew @ ..] = arguments else { return None };
        let now = if now.is_empty() { None } else { Some(number(now)?) };
        let said = Terms::of_words(kind, &[a, b, c])?;
        let anew = if anew.is_empty() { None } else { Some(Terms::of_words(kind, anew)?) };
        Some((Self { said, anew, begins_empty: *empty == "1" }, now))
    }

    /// Returns the arguments of the script at `now`; `None`: by the clock of the server.
    pub fn arguments(&self, now: Option<u64>) -> Vec<String> {
        let (kind, numbers) = self.said.words();
        let mut words = vec![now.map_or_else(String::new, |it| it.to_string()), kind.to_owned()];
        words.extend(numbers.map(|it| it.to_string()));
        words.push(u8::from(self.begins_empty).to_string());
        words.extend(self.anew.into_iter().flat_map(|it| it.words().1).map(|it| it.to_string()));
        words
    }
}

/// What a limit is, and what is taken of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// This.
    Known {
        /// What it is now.
        terms: Terms,
        /// How often it was changed.
        version: u64,
        /// What was spent of a budget.
        spent: u64,
        /// What calls hold, and workers keep for some, of what does not refill.
        flying: u64,
        /// How many workers have wanted some in the last second.
        active: u64,
    },
    /// Nobody has asked for it.
    Unused,
    /// Tasks say that it is something else.
    OtherTerms(String),
}

impl State {
    /// Returns it as the script says it.
    pub fn words(&self) -> Vec<String> {
        match self {
            Self::Known { terms, version, spent, flying, active } => {
                let numbers = [version, spent, flying, active].map(u64::to_string);
                std::iter::once(terms.text()).chain(numbers).collect()
            }
            Self::Unused => Vec::new(),
            Self::OtherTerms(terms) => vec!["terms".to_owned(), terms.clone()],
        }
    }

    /// Reads what the script says; `None` for other words.
    pub fn of_words(words: &[String]) -> Option<Self> {
        Some(match words {
            [] => Self::Unused,
            [name, terms] if name == "terms" => Self::OtherTerms(terms.clone()),
            [terms, version, spent, flying, active] => Self::Known {
                terms: Terms::of_text(terms)?,
                version: number(version)?,
                spent: number(spent)?,
                flying: number(flying)?,
                active: number(active)?,
            },
            _ => return None,
        })
    }
}

/// Reads a number that doubles hold.
fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|it| *it <= MOST)
}
