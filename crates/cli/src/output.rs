//! One way out for every query: a report is a serde type that is printed as JSON, or drawn as text and tables.

use std::io::{self, ErrorKind, IsTerminal, Write};

use comfy_table::ColumnConstraint::{self, ContentWidth};
use comfy_table::{Attribute, Cell, CellAlignment, Color, ContentArrangement, Table, Width, presets};
use serde::Serialize;

use crate::exit::{Failure, Result};

/// What a query found out.
pub trait Report: Serialize {
    /// Draws the report for people.
    fn draw(&self, sheet: &mut Sheet);
}

/// Prints a report to standard output.
pub fn emit(report: &impl Report, json: bool) -> Result<()> {
    if json {
        let mut text = serde_json::to_string_pretty(report).map_err(|e| Failure::io("cannot write JSON", e))?;
        text.push('\n');
        print(&text)
    } else {
        let mut sheet = Sheet::for_stdout();
        report.draw(&mut sheet);
        print(&sheet.text)
    }
}

/// Writes to standard output. A reader that has seen enough (`| head`) is no failure.
pub fn print(text: &str) -> Result<()> {
    match io::stdout().write_all(text.as_bytes()).and_then(|()| io::stdout().flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Failure::io("cannot write to standard output", e)),
        _ => Ok(()),
    }
}

/// Text and tables for one kind of terminal.
pub struct Sheet {
    text: String,
    /// Columns of the terminal; absent in a pipe, where a row is one line however long.
    width: Option<u16>,
    colour: bool,
}

impl Sheet {
    fn for_stdout() -> Sheet {
        let stdout = io::stdout();
        let terminal = stdout.is_terminal();
        let no_colour = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|v| v == "dumb");
        let size = rustix::termios::tcgetwinsize(&stdout).ok().filter(|size| size.ws_col > 0);
        Sheet { text: String::new(), width: size.filter(|_| terminal).map(|size| size.ws_col), colour: terminal && !no_colour && !dumb }
    }

    /// A line of text.
    pub fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    /// A heading, set off from what precedes it.
    pub fn heading(&mut self, text: &str) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        let line = if self.colour { format!("\x1b[1m{text}\x1b[0m") } else { text.into() };
        self.line(line);
    }

    /// A table; columns whose name ends in `>` hold numbers and are aligned right. In a terminal that is too narrow for it, the last
    /// column is wrapped; where even that would leave no room, each row becomes a block of lines.
    pub fn table<const N: usize>(&mut self, columns: [&str; N], rows: impl IntoIterator<Item = [Field; N]>) {
        let names = columns.map(|name| name.trim_end_matches('>'));
        let rows: Vec<[Field; N]> = rows.into_iter().collect();
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        if self.colour {
            table.enforce_styling();
        } else {
            table.force_no_tty();
        }
        table.set_header(names.map(|name| Cell::new(name).add_attribute(Attribute::Bold)));
        table.add_rows(rows.iter().map(|row| row.each_ref().map(Field::to_cell)));
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, if index + 1 == N { 0 } else { GAP }));
            if columns[index].ends_with('>') {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        match self.width.map(|width| fit(width, &table.column_max_content_widths())) {
            None | Some(Fit::Whole) => {}
            Some(Fit::LastColumn(width)) => {
                table.set_content_arrangement(ContentArrangement::Dynamic);
                for (index, column) in table.column_iter_mut().enumerate() {
                    column.set_constraint(if index + 1 == N { ColumnConstraint::Absolute(Width::Fixed(width)) } else { ContentWidth });
                }
            }
            Some(Fit::No) => return self.blocks(&names, &rows),
        }
        for line in table.to_string().lines() {
            self.line(line.trim_end());
        }
    }

    fn blocks<const N: usize>(&mut self, names: &[&str; N], rows: &[[Field; N]]) {
        let width = names.iter().map(|name| name.len()).max().unwrap_or(0);
        for (index, row) in rows.iter().enumerate() {
            if index > 0 {
                self.line("");
            }
            for (name, field) in names.iter().zip(row) {
                self.line(format!("{name:<width$}  {}", field.text).trim_end());
            }
        }
    }
}

/// Spaces between columns.
const GAP: u16 = 2;
/// The least that a wrapped column must have.
const LEAST: u16 = 20;

/// How a table fits into a terminal.
#[derive(Debug, PartialEq, Eq)]
enum Fit {
    Whole,
    /// With its last column that wide.
    LastColumn(u16),
    No,
}

/// How columns of these widths fit into a terminal of `width`.
fn fit(width: u16, columns: &[u16]) -> Fit {
    let Some((&last, others)) = columns.split_last() else {
        return Fit::Whole;
    };
    let left = others.iter().try_fold(width, |left, column| left.checked_sub(column.saturating_add(GAP)));
    match left {
        Some(left) if left >= last => Fit::Whole,
        Some(left) if left >= LEAST => Fit::LastColumn(left),
        _ => Fit::No,
    }
}

/// One cell of a table.
pub struct Field {
    text: String,
    alarm: bool,
}

impl Field {
    /// A cell that should catch the eye: something dead or stuck.
    pub fn alarm(text: impl ToString, alarm: bool) -> Field {
        Field { text: text.to_string(), alarm }
    }

    fn to_cell(&self) -> Cell {
        let cell = Cell::new(&self.text);
        if self.alarm { cell.fg(Color::Red) } else { cell }
    }
}

impl<T: ToString> From<T> for Field {
    fn from(value: T) -> Field {
        Field { text: value.to_string(), alarm: false }
    }
}

/// A duration with the precision that a person wants.
pub fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..120_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        7_200_000..172_800_000 => format!("{} h", ms / 3_600_000),
        _ => format!("{} days", ms / 86_400_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty(width: Option<u16>, colour: bool) -> Sheet {
        Sheet { text: String::new(), width, colour }
    }

    fn sheet_of_two(width: Option<u16>, colour: bool) -> Sheet {
        let mut sheet = empty(width, colour);
        sheet.table(["name", "n>"], [[Field::from("a rather long name of something"), 7.into()], ["b".into(), Field::alarm(1234, true)]]);
        sheet
    }

    #[test]
    fn pipes_get_one_line_per_row() {
        let text = sheet_of_two(None, false).text;
        assert_eq!(
            text,
            "name                                n\na rather long name of something     7\nb                                1234\n"
        );
    }

    #[test]
    fn narrow_terminals_wrap_the_last_column_or_get_blocks() {
        assert_eq!(fit(80, &[10, 20, 30]), Fit::Whole);
        assert_eq!(fit(64, &[10, 20, 30]), Fit::Whole);
        assert_eq!(fit(63, &[10, 20, 30]), Fit::LastColumn(29));
        assert_eq!(fit(53, &[10, 20, 30]), Fit::No);
        assert_eq!(fit(5, &[10, 20, 30]), Fit::No);

        let mut sheet = empty(Some(40), false);
        let holders = "first second third fourth fifth sixth seventh";
        sheet.table(["num>", "holders"], [[Field::from(7), holders.into()]]);
        assert_eq!(sheet.text, "num  holders\n  7  first second third fourth fifth\n     sixth seventh\n");
        assert_eq!(sheet_of_two(Some(20), false).text, "name  a rather long name of something\nn     7\n\nname  b\nn     1234\n");
    }

    #[test]
    fn colour_only_when_asked() {
        assert!(sheet_of_two(None, true).text.contains('\x1b'));
        assert!(!sheet_of_two(Some(80), false).text.contains('\x1b'));
    }

    #[test]
    fn durations() {
        assert_eq!(duration(7), "7 ms");
        assert_eq!(duration(1_250), "1.2 s");
        assert_eq!(duration(180_000), "3 min");
        assert_eq!(duration(200_000_000), "2 days");
    }
}
