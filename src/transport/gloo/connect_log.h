#pragma once
// What Gloo writes to standard error by itself.

namespace chimera {

/// Keeps from standard error the line that Gloo logs for each attempt to connect that fails, at a level that no setting
/// turns off (it goes to std::cerr, like everything that Gloo logs). An attempt that is repeated concerns nobody, and
/// one that fails for good is the error that join() throws; but where a rank died while others connected to it, those
/// lines would stand before the one that names it. For the rest of the process; all else passes.
void drop_connect_log();

}  // namespace chimera
