// SPDX-License-Identifier: Apache-2.0
//! `#[guarded]`: no panic leaves an entry of the extension module.
//!
//! Written in front of `#[pymethods]` and `#[pyfunction]`, it runs the body of each function inside
//! of `crate::guard::guarded`. A test of the repository finds entries without it.

use proc_macro::TokenStream;
use quote::ToTokens;
use syn::{
    Block, Error, ImplItem, Item, ReturnType, Signature, Type, parse_macro_input, parse_quote,
};

/// Has a panic in a function, or in each function of an `impl`, returned as an `InternalError`.
///
/// A function that returns no `PyResult` returns one of what it returned.
#[proc_macro_attribute]
pub fn guarded(_arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut item = parse_macro_input!(item as Item);
    match &mut item {
        Item::Fn(function) => guard(&mut function.sig, &mut function.block),
        Item::Impl(methods) => {
            for method in &mut methods.items {
                if let ImplItem::Fn(method) = method {
                    guard(&mut method.sig, &mut method.block);
                }
            }
        }
        other => {
            let message = "`#[guarded]` belongs to a function or an `impl`";
            return Error::new_spanned(other, message).into_compile_error().into();
        }
    }
    item.into_token_stream().into()
}

fn guard(signature: &mut Signature, body: &mut Block) {
    let returned: Type = match &signature.output {
        ReturnType::Default => parse_quote!(()),
        ReturnType::Type(_, returned) => (**returned).clone(),
    };
    *body = if is_result(&returned) {
        parse_quote!({ crate::guard::guarded(move || -> #returned #body) })
    } else {
        signature.output = parse_quote!(-> ::pyo3::PyResult<#returned>);
        parse_quote!({ crate::guard::guarded_value(move || -> #returned #body) })
    };
}

/// Whether a type is named `PyResult`, in whatever module.
fn is_result(returned: &Type) -> bool {
    let Type::Path(path) = returned else { return false };
    path.path.segments.last().is_some_and(|segment| segment.ident == "PyResult")
}
