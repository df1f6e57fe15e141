#pragma once
// What Gloo and c10d write to standard error by themselves.

namespace chimera {

/// Keeps from standard error the lines in which Gloo and c10d log each attempt to connect that fails. They go to
/// std::cerr, Gloo's at a level that no setting turns off. An attempt that is repeated concerns nobody, and one that
/// fails for good is the error that join() throws; but where a rank died while others connected to it, those lines
/// would stand before the one that names it. For the rest of the process; all else passes.
void drop_connect_log();

}  // namespace chimera
