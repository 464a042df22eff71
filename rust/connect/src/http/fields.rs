// SPDX-License-Identifier: Apache-2.0
//! Bodies of named fields: forms, and parts; some parts are files.

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use rand::TryRng;
use rand::rngs::SysRng;
use serde::Deserialize;
use sparkawait_task::error::StartError;

use crate::template::{
    BoundTemplate, Escape, Template, TemplateRows, keyed, percent_encode_from, percent_encoded,
};

/// A part of a multipart body. Has no `Debug`: it may hold a token.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Part {
    name: String,
    value: String,
    /// What a file is called, a template; without it the part is a text.
    filename: Option<String>,
    content_type: Option<String>,
}

/// Fields whose columns were looked up.
pub(super) struct Fields {
    named: Vec<Vec<Piece<BoundTemplate>>>,
    separator: &'static str,
    end: String,
}

/// A piece of a field.
enum Piece<T> {
    Text(String),
    Value(T, Writing),
}

/// How a value is written.
#[derive(Clone, Copy)]
enum Writing {
    AsItIs,
    /// Percent-encoded, with the text around it.
    Percent,
    /// Within quotes of a header.
    Quoted,
}

impl Fields {
    /// Looks the columns of a form up in `schema`.
    pub(super) fn form(form: &[(String, String)], schema: &Schema) -> Result<Self, StartError> {
        let field = |(name, value): &(String, String)| {
            let value = Template::parse(value, &keyed("form", name))?.bind(schema)?;
            let name = percent_encoded(name.as_str()) + "=";
            Ok(vec![Piece::Text(name), Piece::Value(value, Writing::Percent)])
        };
        let fields = form.iter().map(field).collect::<Result<_, StartError>>()?;
        Ok(Self { named: fields, separator: "&", end: String::new() })
    }

    /// Looks the columns of parts up in `schema`; `boundary` stands between them.
    pub(super) fn parts(
        parts: &[Part],
        boundary: &str,
        schema: &Schema,
    ) -> Result<Self, StartError> {
        let bind = |text: &str| Template::parse(text, "multipart")?.bind(schema);
        let field = |part: &Part| {
            let mut name = part.name.clone().into_bytes();
            quote_from(0, &mut name);
            let name = String::from_utf8_lossy(&name).into_owned();
            let mut head =
                format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"");
            let mut pieces = Vec::new();
            if let Some(filename) = &part.filename {
                head.push_str("; filename=\"");
                pieces.push(Piece::Text(std::mem::take(&mut head)));
                pieces.push(Piece::Value(bind(filename)?, Writing::Quoted));
                head.push('"');
            }
            if let Some(content_type) = &part.content_type {
                head.push_str("\r\nContent-Type: ");
                head.push_str(content_type);
            }
            head.push_str("\r\n\r\n");
            pieces.push(Piece::Text(head));
            pieces.push(Piece::Value(bind(&part.value)?, Writing::AsItIs));
            pieces.push(Piece::Text("\r\n".to_owned()));
            Ok(pieces)
        };
        let fields = parts.iter().map(field).collect::<Result<_, StartError>>()?;
        Ok(Self { named: fields, separator: "", end: format!("--{boundary}--\r\n") })
    }

    /// The columns in them.
    pub(super) fn columns(&self) -> impl Iterator<Item = usize> {
        let values = self.named.iter().flatten().filter_map(Piece::value);
        values.flat_map(BoundTemplate::column_indices)
    }

    /// Opens the columns of `batch`.
    pub(super) fn rows<'a>(&'a self, batch: &'a RecordBatch) -> Result<FieldRows<'a>, StartError> {
        let open = |piece: &'a Piece<BoundTemplate>| match piece {
            Piece::Text(text) => Ok(Piece::Text(text.clone())),
            Piece::Value(value, writing) => Ok(Piece::Value(value.rows(batch)?, *writing)),
        };
        let fields = self.named.iter().map(|field| field.iter().map(open).collect());
        let fields = fields.collect::<Result<_, StartError>>()?;
        Ok(FieldRows { fields, separator: self.separator, end: &self.end })
    }
}

impl<T> Piece<T> {
    fn value(&self) -> Option<&T> {
        match self {
            Self::Text(_) => None,
            Self::Value(value, _) => Some(value),
        }
    }
}

/// Fields over the rows of one batch.
pub(super) struct FieldRows<'a> {
    fields: Vec<Vec<Piece<TemplateRows<'a>>>>,
    separator: &'static str,
    end: &'a str,
}

impl FieldRows<'_> {
    /// Appends the fields of `row`, without those that read a column that is null.
    pub(super) fn append(&self, row: usize, out: &mut Vec<u8>) {
        let start = out.len();
        for field in &self.fields {
            let field_start = out.len();
            if field_start > start {
                out.extend_from_slice(self.separator.as_bytes());
            }
            if !field.iter().all(|piece| piece.write(row, out)) {
                out.truncate(field_start);
            }
        }
        out.extend_from_slice(self.end.as_bytes());
    }
}

impl Piece<TemplateRows<'_>> {
    fn write(&self, row: usize, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Text(text) => out.extend_from_slice(text.as_bytes()),
            Self::Value(value, writing) => {
                let start = out.len();
                if !value.write(row, Escape::None, out) {
                    return false;
                }
                match writing {
                    Writing::AsItIs => {}
                    Writing::Percent => percent_encode_from(start, out),
                    Writing::Quoted => quote_from(start, out),
                }
            }
        }
        true
    }
}

/// Writes what follows `start` in `out` as browsers write names and file names of parts.
fn quote_from(start: usize, out: &mut Vec<u8>) {
    let needs_none = |byte: &u8| !matches!(byte, b'"' | b'\r' | b'\n');
    if out[start..].iter().all(needs_none) {
        return;
    }
    for byte in out.split_off(start) {
        match byte {
            b'"' => out.extend_from_slice(b"%22"),
            b'\r' => out.extend_from_slice(b"%0D"),
            b'\n' => out.extend_from_slice(b"%0A"),
            _ => out.push(byte),
        }
    }
}

/// Returns a text that no other task has.
///
/// From the system: what a process keeps of it, its forked children would repeat.
pub(super) fn random_text() -> Result<String, StartError> {
    let mut bytes = [0; 16];
    SysRng.try_fill_bytes(&mut bytes).map_err(|error| {
        StartError::option(format!("the system gives no random numbers: {error}"))
    })?;
    Ok(format!("{:032x}", u128::from_le_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{BinaryArray, StringArray};
    use arrow::datatypes::{DataType, Field};

    use super::*;

    fn batch() -> RecordBatch {
        let fields = [("t", DataType::Utf8), ("b", DataType::Binary)];
        let fields = fields.map(|(name, kind)| Field::new(name, kind, true));
        let texts = StringArray::from(vec![Some("a&b c"), None, Some("\"é\r\n")]);
        let bytes = BinaryArray::from(vec![Some(&b"\0\xff"[..]), Some(b""), Some(b"x")]);
        let schema = Arc::new(Schema::new(fields.to_vec()));
        RecordBatch::try_new(schema, vec![Arc::new(texts), Arc::new(bytes)]).unwrap()
    }

    fn written(fields: &Fields, batch: &RecordBatch) -> Vec<String> {
        let rows = fields.rows(batch).unwrap();
        let row = |row| {
            let mut out = Vec::new();
            rows.append(row, &mut out);
            out.escape_ascii().to_string()
        };
        (0..batch.num_rows()).map(row).collect()
    }

    #[test]
    fn fields_of_a_form_are_encoded_and_left_out_where_they_are_null() {
        let batch = batch();
        let form = [("k 1", "x={t}"), ("b", "{b}"), ("c", "+")];
        let form = form.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let fields = Fields::form(&form, batch.schema_ref()).unwrap();

        assert_eq!(fields.columns().collect::<Vec<_>>(), [0, 1]);
        let expected = [
            "k%201=x%3Da%26b%20c&b=%00%FF&c=%2B",
            "b=&c=%2B",
            "k%201=x%3D%22%C3%A9%0D%0A&b=x&c=%2B",
        ];
        assert_eq!(written(&fields, &batch), expected);
    }

    #[test]
    fn a_part_is_a_text_or_a_file_and_left_out_where_it_is_null() {
        let batch = batch();
        let part = |name: &str, value: &str, filename: Option<&str>| Part {
            name: name.to_owned(),
            value: value.to_owned(),
            filename: filename.map(str::to_owned),
            content_type: filename.map(|_| "image/png".to_owned()),
        };
        let parts = [part("n\"", "{t}", None), part("f", "{b}", Some("{t}.png"))];
        let fields = Fields::parts(&parts, "B", batch.schema_ref()).unwrap();

        let name = r#"--B\r\nContent-Disposition: form-data; name=\"n%22\"\r\n\r\n"#;
        let file = |name: &str| {
            let head = r#"--B\r\nContent-Disposition: form-data; name=\"f\"; filename=\""#;
            format!(r#"{head}{name}.png\"\r\nContent-Type: image/png\r\n\r\n"#)
        };
        let expected = [
            format!(r"{name}a&b c\r\n{}\x00\xff\r\n--B--\r\n", file("a&b c")),
            r"--B--\r\n".to_owned(),
            format!(r#"{name}\"\xc3\xa9\r\n\r\n{}x\r\n--B--\r\n"#, file("%22\\xc3\\xa9%0D%0A")),
        ];
        assert_eq!(written(&fields, &batch), expected);
    }
}
