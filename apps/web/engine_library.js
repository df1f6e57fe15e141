"use strict";
// What the compiled half calls: `Module.report` of whoever made it, if there is one.
mergeInto(LibraryManager.library, {
  chimera_report: function(progress) {
    if (Module["report"]) Module["report"](UTF8ToString(progress));
  },
});
