// SPDX-License-Identifier: Apache-2.0
//! The columns that a task puts out.

use std::collections::HashSet;

use arrow::datatypes::{Field, FieldRef, Schema};

use crate::{
    call_info::CallInfo,
    error::{Error, Side},
    row_failure,
};

/// Default name of the column that failures are captured in.
pub const ERROR_COLUMN: &str = "error";

/// Which columns an output row has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OutputColumns {
    /// The columns of the input row, then the returned ones.
    #[default]
    Append,
    /// The returned columns only.
    Replace,
}

/// What the final failure of a row does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnError {
    /// The task fails.
    #[default]
    Fail,
    /// The returned columns of the row are null.
    Null,
    /// The row is left out.
    Drop,
    /// As [`OnError::Null`], and a last column says what happened.
    Capture,
}

impl OnError {
    /// Whether a failed row appears in the output, with null results.
    pub(crate) fn keeps_the_row(self) -> bool {
        matches!(self, Self::Null | Self::Capture)
    }
}

/// Returns the schema of the output batches.
///
/// Input fields keep their metadata, which is where Spark keeps an event-time
/// watermark, and with [`OutputColumns::Append`] the input's schema metadata is
/// kept as well. Result fields become nullable when a failed row is kept. With
/// [`OnError::Capture`] the column `error_column` follows, and the last one is `info_column`, which
/// tells of the calls of each row, if there is one.
///
/// # Errors
///
/// When two columns would have the same name. Duplicates within the input are
/// the user's own and pass.
pub fn output_schema(
    input: &Schema,
    result: &Schema,
    output: OutputColumns,
    on_error: OnError,
    error_column: &str,
    info_column: Option<&str>,
) -> Result<Schema, Error> {
    let (inherited, metadata) = match output {
        OutputColumns::Append => (input.fields().as_ref(), input.metadata()),
        OutputColumns::Replace => (&[] as &[FieldRef], result.metadata()),
    };
    let captures = on_error == OnError::Capture;
    let error = captures.then_some((error_column, "captures failures"));
    let info = info_column.map(|name| (name, "tells of calls"));
    check_names(inherited, result.fields(), error.into_iter().chain(info))?;
    let mut fields = inherited.to_vec();
    fields.extend(result.fields().iter().map(|field| result_field(field, on_error)));
    if captures {
        fields.push(Field::new(error_column, row_failure::data_type(), true).into());
    }
    if let Some(name) = info_column {
        fields.push(Field::new(name, CallInfo::data_type(), true).into());
    }
    Ok(Schema::new_with_metadata(fields, metadata.clone()))
}

fn result_field(field: &FieldRef, on_error: OnError) -> FieldRef {
    if on_error.keeps_the_row() && !field.is_nullable() {
        return field.as_ref().clone().with_nullable(true).into();
    }
    FieldRef::clone(field)
}

/// Checks that all names differ; `added` are those of further columns, and what these are for.
fn check_names<'a>(
    input: &[FieldRef],
    result: &[FieldRef],
    added: impl Iterator<Item = (&'a str, &'static str)>,
) -> Result<(), Error> {
    let inputs: HashSet<&str> = input.iter().map(|field| field.name().as_str()).collect();
    let mut results = HashSet::new();
    for name in result.iter().map(|field| field.name()) {
        if inputs.contains(name.as_str()) {
            return Err(Error::NameClash { column: name.clone() });
        }
        if !results.insert(name.as_str()) {
            return Err(Error::DuplicateResult { column: name.clone() });
        }
    }
    let mut names = HashSet::new();
    for (name, tells) in added {
        let column = name.to_owned();
        if inputs.contains(name) {
            return Err(Error::ReservedName { side: Side::Input, column, tells });
        }
        if results.contains(name) || !names.insert(name) {
            return Err(Error::ReservedName { side: Side::Result, column, tells });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use arrow::datatypes::DataType;

    use super::*;

    fn output_schema(
        input: &Schema,
        result: &Schema,
        output: OutputColumns,
        on_error: OnError,
    ) -> Result<Schema, Error> {
        super::output_schema(input, result, output, on_error, ERROR_COLUMN, None)
    }

    fn schema(names: &[&str]) -> Schema {
        Schema::new(
            names.iter().map(|n| Field::new(*n, DataType::Int64, false)).collect::<Vec<_>>(),
        )
    }

    fn names(schema: &Schema) -> Vec<&str> {
        schema.fields().iter().map(|field| field.name().as_str()).collect()
    }

    fn metadata(key: &str) -> HashMap<String, String> {
        HashMap::from([(key.to_owned(), "1".to_owned())])
    }

    #[test]
    fn append_keeps_the_metadata_of_the_input() {
        let watermarked = Field::new("t", DataType::Int64, true)
            .with_metadata(metadata("spark.watermarkDelayMs"));
        let input = Schema::new_with_metadata(vec![watermarked], metadata("schema"));

        let output =
            output_schema(&input, &schema(&["y"]), OutputColumns::Append, OnError::Fail).unwrap();

        assert_eq!(names(&output), ["t", "y"]);
        assert_eq!(output.field(0), input.field(0));
        assert_eq!(output.metadata(), input.metadata());
        assert!(!output.field(1).is_nullable());
    }

    #[test]
    fn replace_has_the_result_columns_only_and_may_reuse_input_names() {
        let output =
            output_schema(&schema(&["x"]), &schema(&["x"]), OutputColumns::Replace, OnError::Drop);

        assert_eq!(output.unwrap(), schema(&["x"]));
    }

    #[test]
    fn result_column_is_nullable_when_a_failed_row_is_kept() {
        for on_error in [OnError::Null, OnError::Capture] {
            let output =
                output_schema(&schema(&["x"]), &schema(&["y"]), OutputColumns::Append, on_error)
                    .unwrap();

            assert!(!output.field(0).is_nullable());
            assert!(output.field(1).is_nullable());
        }
    }

    #[test]
    fn capture_appends_the_error_column() {
        let output = output_schema(
            &schema(&["x"]),
            &schema(&["y"]),
            OutputColumns::Replace,
            OnError::Capture,
        )
        .unwrap();

        assert_eq!(names(&output), ["y", "error"]);
        assert_eq!(output.field(1).data_type(), &row_failure::data_type());
    }

    #[test]
    fn error_column_of_another_name_goes_beside_a_column_error() {
        let output = super::output_schema(
            &schema(&["error"]),
            &schema(&["y"]),
            OutputColumns::Append,
            OnError::Capture,
            "why",
            None,
        );

        assert_eq!(names(&output.unwrap()), ["error", "y", "why"]);
    }

    #[test]
    fn the_column_of_calls_is_the_last_one_and_has_a_name_of_its_own() {
        let of = |input: &str, on_error, info| {
            let (input, result) = (schema(&[input]), schema(&["y"]));
            let append = OutputColumns::Append;
            super::output_schema(&input, &result, append, on_error, ERROR_COLUMN, Some(info))
        };

        let output = of("x", OnError::Capture, "call").unwrap();
        assert_eq!(names(&output), ["x", "y", "error", "call"]);
        assert_eq!(output.field(3).data_type(), &CallInfo::data_type());
        assert_eq!(names(&of("x", OnError::Drop, "error").unwrap()), ["x", "y", "error"]);
        for (input, info, side) in [("call", "call", "input"), ("x", "y", "result")] {
            let refused = of(input, OnError::Fail, info).unwrap_err().to_string();
            let told =
                format!("{side} column `{info}` has the name of the column that tells of calls");
            assert_eq!(refused, told);
        }
        assert!(of("x", OnError::Capture, "error").is_err());
    }

    #[test]
    fn name_clashes_are_refused() {
        for (input, result, on_error, message) in [
            (
                ["x"],
                vec!["x"],
                OnError::Fail,
                "column `x` is in the input and in the result; rename one or replace the input",
            ),
            (["x"], vec!["y", "y"], OnError::Fail, "result column `y` is declared twice"),
            (
                ["error"],
                vec!["y"],
                OnError::Capture,
                "input column `error` has the name of the column that captures failures",
            ),
            (
                ["x"],
                vec!["error"],
                OnError::Capture,
                "result column `error` has the name of the column that captures failures",
            ),
        ] {
            let error =
                output_schema(&schema(&input), &schema(&result), OutputColumns::Append, on_error);

            assert_eq!(error.unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn duplicate_names_within_the_input_pass() {
        let output = output_schema(
            &schema(&["x", "x"]),
            &schema(&["y"]),
            OutputColumns::Append,
            OnError::Fail,
        );

        assert_eq!(names(&output.unwrap()), ["x", "x", "y"]);
    }
}
