"use strict";
// JavaScript functions for the compiled engine. Progress goes to `Module.report`, if the page has set it.
mergeInto(LibraryManager.library, {
  chimera_report: function(progress) {
    if (Module["report"]) Module["report"](UTF8ToString(progress));
  },
});
