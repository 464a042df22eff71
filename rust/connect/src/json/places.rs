// SPDX-License-Identifier: Apache-2.0
//! Where the columns of a row are in a document.

use arrow::array::ArrayRef;
use arrow::datatypes::Fields;
use arrow::error::ArrowError;
use jiter::Peek;

use super::reader::Reader;
use super::value::{
    Misfit, Read, each_element, each_member, find, push_missing, read_member, read_text_of_json,
    skip,
};
use crate::column::Member;
use crate::json_path::Step;

/// A value of a document that is a column, or has columns in it.
///
/// ```text
///   id: $.id   name: $.user.name   user: $.user      members: id -> 0
///                                                             user -> 2, members: name -> 1
/// ```
#[derive(Debug, Default)]
pub(super) struct Place {
    /// Columns that take the value itself.
    columns: Vec<usize>,
    members: Vec<(String, Place)>,
    elements: Vec<(usize, Place)>,
    /// Columns that take the value or something in it.
    inside: Vec<usize>,
    /// Whether a value that is not an object is refused: all columns are members of the row.
    is_object: bool,
}

impl Place {
    /// Makes the place of a row, which has no columns yet.
    pub(super) fn of_row(is_object: bool) -> Self {
        Self { is_object, ..Self::default() }
    }

    /// Puts a column at the end of a path that begins here.
    pub(super) fn add(&mut self, steps: &[Step], column: usize) {
        self.inside.push(column);
        match steps {
            [] => self.columns.push(column),
            [Step::Member(name), rest @ ..] => {
                place_of(&mut self.members, name).add(rest, column);
            }
            [Step::Element(index), rest @ ..] => {
                place_of(&mut self.elements, index).add(rest, column);
            }
        }
    }

    fn has_places(&self) -> bool {
        !self.members.is_empty() || !self.elements.is_empty()
    }
}

fn place_of<'a, K: PartialEq + Clone>(places: &'a mut Vec<(K, Place)>, key: &K) -> &'a mut Place {
    let found = places.iter().position(|(known, _)| known == key);
    let index = found.unwrap_or_else(|| {
        places.push((key.clone(), Place::default()));
        places.len() - 1
    });
    &mut places[index].1
}

/// The rows that were read.
#[derive(Debug)]
pub(super) struct Rows {
    columns: Vec<Member>,
    count: usize,
    /// Bytes of a row beside its texts, and what else the document has.
    width: usize,
    /// Whether a row had each column, if that is noted.
    found: Vec<bool>,
}

impl Rows {
    /// Makes empty columns with room for `rows` rows; says which type cannot be read.
    pub(super) fn new(fields: &Fields, rows: usize) -> Result<Self, String> {
        let columns = fields.iter().map(|it| Member::new(it, rows));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let width = columns.iter().map(|it| it.column.width()).sum();
        Ok(Self { columns, count: 0, width, found: Vec::new() })
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Notes from now on which columns rows have, be they null.
    pub(super) fn note_found(&mut self) {
        self.found = vec![false; self.columns.len()];
    }

    pub(super) fn found(&self) -> &[bool] {
        &self.found
    }

    /// Takes back all rows behind the first `count`, complete ones or not.
    pub(super) fn truncate(&mut self, count: usize) {
        self.columns.iter_mut().for_each(|it| it.column.truncate(count));
        self.count = count;
    }

    pub(super) fn finish(self) -> Result<Vec<ArrayRef>, ArrowError> {
        self.columns.into_iter().map(|it| it.column.finish()).collect()
    }

    /// Appends the rows of the array at the end of a path.
    pub(super) fn find_all(
        &mut self,
        jiter: &mut Reader<'_>,
        peek: Peek,
        steps: &[Step],
        row: &Place,
    ) -> Read {
        let start = self.count;
        at_path(jiter, peek, steps, &mut |jiter, found| match found {
            None => {
                self.truncate(start);
                Ok(())
            }
            Some(peek @ (Peek::Array | Peek::Null)) => self.read_all(jiter, peek, row),
            Some(_) => Err(Misfit::document("the value at `rows` is not an array")),
        })
    }

    /// Appends the rows of a value: one, those of its elements, or none of a null.
    pub(super) fn read_all(&mut self, jiter: &mut Reader<'_>, peek: Peek, row: &Place) -> Read {
        match peek {
            Peek::Null => skip(jiter, peek),
            Peek::Array => each_element(jiter, |jiter, _, peek| self.read_row(jiter, peek, row)),
            _ => self.read_row(jiter, peek, row),
        }
    }

    /// Appends the row of a value, whatever it is.
    pub(super) fn read_row(&mut self, jiter: &mut Reader<'_>, peek: Peek, row: &Place) -> Read {
        if row.is_object && peek != Peek::Object {
            skip(jiter, peek)?;
            return Err(Misfit::document("a row must be a JSON object"));
        }
        jiter.take_room(self.width)?;
        self.read_place(jiter, peek, row)?;
        let count = self.count;
        for (found, member) in self.found.iter_mut().zip(&self.columns) {
            *found |= member.column.len() > count;
        }
        let missing = self.columns.iter_mut().filter(|it| it.column.len() == count);
        missing.into_iter().try_for_each(push_missing)?;
        self.count += 1;
        Ok(())
    }

    fn read_place(&mut self, jiter: &mut Reader<'_>, peek: Peek, place: &Place) -> Read {
        // Of equal members the last one counts.
        for column in &place.inside {
            let column = &mut self.columns[*column].column;
            if column.len() > self.count {
                column.truncate(self.count);
            }
        }
        match place.columns.as_slice() {
            [] => self.read_inside(jiter, peek, place),
            [column] if !place.has_places() => self.read_column(jiter, peek, *column),
            columns => {
                let start = jiter.current_index();
                skip(jiter, peek)?;
                for column in columns {
                    jiter.again(start, |jiter| self.read_column(jiter, peek, *column))?;
                }
                jiter.again(start, |jiter| self.read_inside(jiter, peek, place))
            }
        }
    }

    fn read_column(&mut self, jiter: &mut Reader<'_>, peek: Peek, column: usize) -> Read {
        let (start, member) = (jiter.current_index(), &mut self.columns[column]);
        let read = read_member(jiter, peek, member);
        let read = read.or_else(|refused| read_text_of_json(jiter, start, member, refused));
        read.map_err(|misfit| misfit.inside(&member.name))
    }

    /// Reads the columns that are members or elements of a value.
    fn read_inside(&mut self, jiter: &mut Reader<'_>, peek: Peek, place: &Place) -> Read {
        match peek {
            Peek::Object if !place.members.is_empty() => {
                let mut next = 0;
                each_member(
                    jiter,
                    |name| find(&place.members, |(member, _)| member, name, &mut next),
                    |jiter, found, peek| match found {
                        Some(found) => self.read_place(jiter, peek, &place.members[found].1),
                        None => skip(jiter, peek),
                    },
                )
            }
            Peek::Array if !place.elements.is_empty() => {
                each_element(jiter, |jiter, index, peek| {
                    match place.elements.iter().find(|(wanted, _)| *wanted == index) {
                        Some((_, place)) => self.read_place(jiter, peek, place),
                        None => skip(jiter, peek),
                    }
                })
            }
            _ => skip(jiter, peek),
        }
    }
}

/// Hands the value at the end of a path to `take`. Of equal members on the way the last one counts: `take` is
/// told by `None` to forget what it was handed before.
pub(super) fn at_path(
    jiter: &mut Reader<'_>,
    peek: Peek,
    steps: &[Step],
    take: &mut impl FnMut(&mut Reader<'_>, Option<Peek>) -> Read,
) -> Read {
    match (steps, peek) {
        ([], _) => take(jiter, Some(peek)),
        ([Step::Member(wanted), rest @ ..], Peek::Object) => each_member(
            jiter,
            |name| name == wanted,
            |jiter, is_wanted, peek| {
                if !is_wanted {
                    return skip(jiter, peek);
                }
                take(jiter, None)?;
                at_path(jiter, peek, rest, take)
            },
        ),
        ([Step::Element(wanted), rest @ ..], Peek::Array) => {
            each_element(jiter, |jiter, index, peek| {
                if index == *wanted { at_path(jiter, peek, rest, take) } else { skip(jiter, peek) }
            })
        }
        _ => skip(jiter, peek),
    }
}
