;;; midfill.el --- Ghost text from midfill's language server  -*- lexical-binding: t; -*-

;; Author: the authors of midfill
;; Version: 0.1.0
;; Package-Requires: ((emacs "28.1"))
;; Keywords: convenience, languages
;; SPDX-License-Identifier: Apache-2.0

;;; Commentary:

;; `midfill-mode' shows suggestions as grey text at the cursor.  Tab accepts one, M-<right> its next word; Escape or C-g
;; dismisses it, and so does any command that leaves it behind.  The mode has its own connection to `midfill lsp', so it
;; works beside Eglot and lsp-mode.  midfill-reason.el says why nothing is suggested; midfill-next-edit.el has next edits.
;;
;;     (add-to-list 'load-path "/path/to/midfill/editors/emacs")
;;     (require 'midfill)
;;     (add-hook 'prog-mode-hook #'midfill-mode)

;;; Code:

(require 'cl-lib)
(require 'jsonrpc)
(require 'project)
(require 'url-util)

(defgroup midfill nil "Local code completion that computes only what you typed." :group 'convenience)

(defcustom midfill-command '("midfill" "lsp")
  "The command that starts the language server."
  :type '(repeat string))

(defcustom midfill-settings nil
  "The server's settings, of docs/settings.md, such as (:maxTokens 48)."
  :type 'plist)

(defcustom midfill-automatic t
  "Whether suggestions come while you type.
Otherwise they come on request alone: `midfill-suggest'."
  :type 'boolean)

(defface midfill-ghost '((t :inherit shadow)) "Face of suggestions.")

(defconst midfill--languages
  '(("bash" . "shellscript") ("c++" . "cpp") ("conf-toml" . "toml") ("cperl" . "perl") ("emacs-lisp" . "lisp")
    ("enh-ruby" . "ruby") ("gfm" . "markdown") ("js" . "javascript") ("js-jsx" . "javascriptreact")
    ("js2" . "javascript") ("lisp-interaction" . "lisp") ("makefile-automake" . "makefile")
    ("makefile-bsdmake" . "makefile") ("makefile-gmake" . "makefile") ("mhtml" . "html") ("nxml" . "xml")
    ("objc" . "objective-c") ("rjsx" . "javascriptreact") ("rst" . "restructuredtext") ("sh" . "shellscript")
    ("text" . "plaintext") ("tsx" . "typescriptreact") ("tuareg" . "ocaml"))
  "LSP's ids of languages by the names of modes, where they differ.")

;;; The connection

(defvar midfill--connection nil "The connection to the language server; nil before the first buffer needs it.")
(defvar midfill--ready nil "Whether the server has answered `initialize'.")
(defvar midfill--commands nil "The commands that the server offers.")
(defvar midfill--core-reason nil "Why no document gets suggestions, as in midfill/reason; nil if the core can answer.")
(defvar midfill-mode)
(defvar-local midfill--open nil "The document's URI at the server; nil while it is not open there.")
(defvar-local midfill--reason nil "Why the open document gets no suggestions, as the server last told; nil if it gets them.")
(defvar midfill--folders nil "The URIs of the workspace folders that the server knows.")

(defun midfill--uri (path)
  "The file URI of PATH."
  (concat "file://" (if (eq system-type 'windows-nt) "/" "")
          (url-hexify-string (expand-file-name path) url-path-allowed-chars)))

(defun midfill--folder ()
  "The workspace folder of this buffer, as LSP has it."
  (let ((root (if-let ((project (project-current))) (project-root project) default-directory)))
    (list :uri (midfill--uri (directory-file-name root)) :name (file-name-nondirectory (directory-file-name root)))))

(defun midfill--start ()
  "Start the language server."
  (unless (executable-find (car midfill-command))
    (user-error "`%s' is not executable: set midfill-command" (car midfill-command)))
  (setq midfill--ready nil
        midfill--core-reason '(:text "starting" :explanation "The language server is starting.")
        midfill--folders (list (plist-get (midfill--folder) :uri))
        midfill--connection
        (apply
         #'make-instance
         'jsonrpc-process-connection
         :name "midfill"
         :process (lambda ()
                    (make-process :name "midfill" :command midfill-command :connection-type 'pipe :coding 'utf-8-emacs-unix
                                  :noquery t :stderr (get-buffer-create "*midfill log*")))
         :notification-dispatcher #'midfill--notified
         :request-dispatcher #'ignore ; nil is an answer to all that a server asks of this client
         :on-shutdown (lambda (_)
                        (setq midfill--ready nil midfill--core-reason
                              '(:text "stopped" :explanation
                                "The language server has stopped: see *midfill log*, then M-x midfill-restart."))
                        (midfill--each-buffer (lambda () (setq midfill--open nil) (midfill--clear))))
         ;; No buffer of events: it would hold the text of every document, and the core's token.
         (if (slot-exists-p 'jsonrpc-connection '-events-buffer-config) ; from Emacs 30 on
             '(:events-buffer-config (:size 0))
           '(:events-buffer-scrollback-size 0))))
  (jsonrpc-async-request
   midfill--connection :initialize
   (list :processId (emacs-pid)
         :clientInfo (list :name "Emacs" :version emacs-version)
         :rootUri (car midfill--folders)
         :workspaceFolders (vector (midfill--folder))
         :initializationOptions (or midfill-settings (make-hash-table))
         :capabilities '(:general (:positionEncodings ["utf-32"])
                         :workspace (:workspaceFolders t)
                         :textDocument (:inlineCompletion (:dynamicRegistration :json-false))
                         :experimental (:midfill t)))
   :success-fn (lambda (answer)
                 (jsonrpc-notify midfill--connection :initialized (make-hash-table))
                 (setq midfill--ready t
                       midfill--commands
                       (plist-get (plist-get (plist-get answer :capabilities) :executeCommandProvider) :commands))
                 (midfill--each-buffer #'midfill--open))
   :error-fn (lambda (reason) (message "midfill: %s" (plist-get reason :message)))
   :timeout 120 ; a cold disk is slow
   :timeout-fn (lambda () (message "midfill: the language server does not answer: see *midfill log*, then M-x midfill-restart"))))

(defun midfill--running-p ()
  "Whether the language server runs."
  (and midfill--connection (jsonrpc-running-p midfill--connection)))

(defvar midfill--problem nil "Why the language server could not be started, as the user was told.")

(defun midfill--connect ()
  "Start the language server, unless it runs; nil if that fails.
A failure is told once: hooks of modes start it in every buffer."
  (condition-case failure
      (progn
        (unless (midfill--running-p) (midfill--start))
        (setq midfill--problem nil)
        t)
    (error
     (let ((problem (error-message-string failure)))
       (unless (equal problem midfill--problem)
         (display-warning 'midfill (format-message "%s. `midfill-mode' is off." problem)))
       (setq midfill--problem problem)
       nil))))

(defun midfill--notified (_connection method parameters)
  "Take the server's notification METHOD with its PARAMETERS."
  (let ((uri (plist-get (plist-get parameters :textDocument) :uri)))
    (pcase method
      ('midfill/status (setq midfill--core-reason (plist-get parameters :reason)) (force-mode-line-update t))
      ('midfill/reason (midfill--in-document uri #'midfill-reason--told (plist-get parameters :reason)))
      ('midfill/refresh (midfill--in-document uri #'midfill-reason--ended (eq t (plist-get parameters :invoked))))
      ('midfill/resync (midfill--in-document uri (lambda () (midfill--close) (midfill--open))))
      ('window/showMessage (message "%s" (plist-get parameters :message))))))

(defun midfill--each-buffer (function)
  "Call FUNCTION in every buffer with `midfill-mode'."
  (dolist (buffer (buffer-list))
    (when (buffer-local-value 'midfill-mode buffer)
      (with-current-buffer buffer (funcall function)))))

(defun midfill--in-document (uri function &rest arguments)
  "Call FUNCTION with ARGUMENTS in the buffer of the document URI, if it is open."
  (midfill--each-buffer (lambda () (when (equal uri midfill--open) (apply function arguments)))))

(defun midfill--notify (method &rest parameters)
  "Send METHOD with PARAMETERS if the server listens."
  (when (and midfill--ready (midfill--running-p))
    (jsonrpc-notify midfill--connection method parameters)))

(defun midfill--request (method parameters &optional take)
  "Ask METHOD with PARAMETERS if the server listens, and call TAKE with the answer.
No error is shown: a newer request has ended this one, or the server's status says what is wrong."
  (when (and midfill--ready (midfill--running-p)) ; Emacs removes what fails from its hooks
    (jsonrpc-async-request midfill--connection method parameters
                           :timeout nil :success-fn (or take #'ignore) :error-fn #'ignore)))

(defun midfill-restart ()
  "Start midfill again: the core, which all editors share, and the language server."
  (interactive)
  (when (midfill--running-p)
    (ignore-errors ; what does not answer is not waited for
      (jsonrpc-request midfill--connection :workspace/executeCommand '(:command "midfill.restartCore") :timeout 3))
    (ignore-errors ; it saves its counts, and is killed if it does not
      (jsonrpc-request midfill--connection :shutdown nil :timeout 3)
      (jsonrpc-notify midfill--connection :exit nil))
    (jsonrpc-shutdown midfill--connection))
  (midfill--start))

;;; The document

(defvar-local midfill--version 0 "The document's version at the server.")
(defvar-local midfill--size 0 "How many characters the server's text has; -1 if it is unknown.")
(defvar-local midfill--tick 0 "The buffer's `buffer-chars-modified-tick' at the last change that the server knows.")
(defvar-local midfill--before nil "The change that is about to happen, as (BEGIN END RANGE).")

(defun midfill--buffer-uri ()
  "The URI of this buffer's document."
  (if buffer-file-name (midfill--uri buffer-file-name) (concat "untitled:" (url-hexify-string (buffer-name)))))

(defun midfill--document ()
  "This buffer's document, as LSP names it."
  (list :uri midfill--open))

(defun midfill--text (begin end)
  "The text from BEGIN to END."
  (save-restriction (widen) (buffer-substring-no-properties begin end)))

(defun midfill--sent (begin end)
  "The text from BEGIN to END for the server, with as many characters.
JSON cannot carry bytes that are no text, and LSP takes a carriage return within a line for a line end."
  (let ((text (midfill--text begin end)))
    (subst-char-in-string
     ?\r ?\s (replace-regexp-in-string (rx (not (any (0 . #xd7ff) (#xe000 . #x10ffff)))) "\N{REPLACEMENT CHARACTER}" text t t))))

(defun midfill--position (place)
  "PLACE as LSP has it: line and column in characters, from 0."
  (save-excursion
    (save-restriction
      (widen)
      (goto-char place)
      (list :line (1- (line-number-at-pos nil t)) :character (- place (line-beginning-position))))))

(defun midfill--place (position)
  "The place of LSP's POSITION."
  (save-excursion
    (save-restriction
      (widen)
      (goto-char (point-min))
      (forward-line (plist-get position :line))
      (min (line-end-position) (+ (point) (plist-get position :character))))))

(defun midfill--open ()
  "Open this buffer's document at the server, unless it is hidden: packages fontify text in such buffers.
An indirect buffer shares its text with its base, whose document it is."
  (when (and midfill--ready (not midfill--open) (not (buffer-base-buffer)) (not (string-prefix-p " " (buffer-name))))
    (let ((folder (midfill--folder))
          (name (string-remove-suffix "-ts" (string-remove-suffix "-mode" (symbol-name major-mode)))))
      (unless (member (plist-get folder :uri) midfill--folders)
        (push (plist-get folder :uri) midfill--folders)
        (midfill--notify :workspace/didChangeWorkspaceFolders :event (list :added (vector folder) :removed [])))
      (setq midfill--open (midfill--buffer-uri) midfill--version 0 midfill--size (buffer-size)
            midfill--tick (buffer-chars-modified-tick) midfill--reason nil)
      (midfill--notify :textDocument/didOpen :textDocument
                       (list :uri midfill--open :version 0 :text (midfill--sent (point-min) (point-max))
                             :languageId (alist-get name midfill--languages name nil #'equal))))))

(defun midfill--close ()
  "Close this buffer's document at the server."
  (when midfill--open
    (midfill--notify :textDocument/didClose :textDocument (midfill--document))
    (setq midfill--open nil)))

(defun midfill--before-change (begin end)
  "Remember the range of the text from BEGIN to END, which is about to change."
  (when midfill--open
    (unless (= midfill--tick (buffer-chars-modified-tick)) (setq midfill--size -1))
    (setq midfill--before
          (list begin end (list :start (midfill--position begin) :end (midfill--position end))))))

(defun midfill--send (&rest change)
  "Send CHANGE, as LSP has it."
  (midfill--notify :textDocument/didChange
                   :textDocument (list :uri midfill--open :version (cl-incf midfill--version))
                   :contentChanges (vector change)))

(defun midfill--send-unannounced ()
  "Send the whole text if it has changed without the hooks: as by `recode-region', or by another package's hook."
  (unless (and (= midfill--size (buffer-size)) (= midfill--tick (buffer-chars-modified-tick)))
    (setq midfill--size (buffer-size) midfill--tick (buffer-chars-modified-tick))
    (midfill--send :text (save-restriction (widen) (midfill--sent (point-min) (point-max))))))

(defun midfill--after-change (begin end length)
  "Send the change of LENGTH characters at BEGIN, which now end at END."
  (when midfill--open
    (pcase-let ((`(,from ,to ,range) midfill--before) (size (+ midfill--size (- end begin length))))
      (setq midfill--before nil midfill--size -1)
      (when (and range (= begin from) (= length (- to from)) (= size (buffer-size))) ; else it is not what was announced
        (setq midfill--size size midfill--tick (buffer-chars-modified-tick))
        (midfill--send :range range :text (midfill--sent begin end)))
      (midfill--send-unannounced))))

;;; Suggestions

(defvar-local midfill--item nil "The suggestion's item, as the server sent it.")
(defvar-local midfill--start nil "A marker where the suggestion's range begins.")
(defvar-local midfill--end nil "A marker where it ends.")
(defvar-local midfill--overlay nil "The overlay that shows what is not typed of it.")
(defvar-local midfill--seen nil "What `midfill--here' was after the last command.")

(defvar midfill-ghost-map
  (let ((map (make-sparse-keymap)))
    (define-key map [tab] #'midfill-accept)
    (define-key map (kbd "TAB") #'midfill-accept)
    (define-key map (kbd "M-<right>") #'midfill-accept-word)
    (define-key map [escape] #'midfill-dismiss)
    (define-key map (kbd "C-g") #'midfill-dismiss)
    map)
  "Keys while a suggestion is shown.")

(define-minor-mode midfill-ghost-mode
  "The keys of a suggestion that is shown; `midfill-mode' switches it."
  :keymap midfill-ghost-map)

(defun midfill--here ()
  "The text's tick, the window, and the place of the cursor."
  (list (buffer-chars-modified-tick) (get-buffer-window) (point)))

(defun midfill--clear ()
  "Forget the suggestion."
  (when midfill--overlay (delete-overlay midfill--overlay))
  (setq midfill--item nil midfill--overlay nil)
  (when midfill-ghost-mode (midfill-ghost-mode -1)))

(defun midfill--rest ()
  "What is not typed yet of the suggestion; nil if the text has left it."
  (when (and midfill--item (<= midfill--start (point) midfill--end))
    (let ((text (plist-get midfill--item :insertText))
          (typed (midfill--text midfill--start (point))))
      (and (string-prefix-p typed text) (not (string= typed text)) (substring text (length typed))))))

(defun midfill--draw ()
  "Show the rest of the suggestion, or clear it."
  (if-let ((rest (midfill--rest)))
      (progn
        (if midfill--overlay
            (move-overlay midfill--overlay (point) midfill--end)
          (setq midfill--overlay (make-overlay (point) midfill--end nil t t)))
        (overlay-put midfill--overlay 'window (get-buffer-window)) ; others on the buffer have cursors of their own
        (overlay-put midfill--overlay 'invisible t) ; what the suggestion replaces
        (let ((ghost (propertize rest 'face 'midfill-ghost)))
          (put-text-property 0 1 'cursor t ghost)
          (overlay-put midfill--overlay 'before-string ghost))
        (unless midfill-ghost-mode (midfill-ghost-mode 1)))
    (midfill--clear)))

(defun midfill--take (items)
  "Show the first of ITEMS, the answer for this place."
  (midfill--clear)
  (when (and (> (length items) 0) (not completion-in-region-mode))
    (let* ((item (elt items 0))
           (range (plist-get item :range)))
      (setq midfill--item item
            midfill--start (copy-marker (if range (midfill--place (plist-get range :start)) (point)))
            midfill--end (copy-marker (if range (midfill--place (plist-get range :end)) (point)) t))
      (midfill--draw)
      (when midfill--item
        (midfill--notify :textDocument/didShowCompletion :item item)))))

(defun midfill--ask (kind)
  "Ask for a suggestion here: KIND is 1 if the user asks, otherwise 2."
  (when midfill--open
    (let ((buffer (current-buffer)) (place (midfill--here)))
      (midfill--request
       :textDocument/inlineCompletion
       (list :textDocument (midfill--document) :position (midfill--position (point)) :context (list :triggerKind kind))
       (lambda (answer)
         (when (buffer-live-p buffer)
           (with-current-buffer buffer
             (when (and midfill-mode (equal place (midfill--here)))
               (midfill--take (if (vectorp answer) answer (plist-get answer :items)))
               (when (and (= kind 1) (not midfill--item)) (midfill-explain))))))))))

(defun midfill--repeated-p ()
  "Whether the user's keys are repeated where nothing may be suggested: by a macro, or at further cursors."
  (or executing-kbd-macro defining-kbd-macro (bound-and-true-p multiple-cursors-mode)))

(defun midfill--automatic-p ()
  "Whether suggestions may come here of themselves."
  (and midfill-automatic (not buffer-read-only) (not (midfill--repeated-p))
       (memq (bound-and-true-p evil-state) '(nil insert emacs))))

(defun midfill--after-command ()
  "Follow the text and the cursor."
  (let ((seen (midfill--here)))
    (unless (equal seen midfill--seen)
      (let ((edited (not (equal (car seen) (car midfill--seen)))))
        (setq midfill--seen seen)
        (when midfill--item (midfill--draw))
        (when midfill--open (midfill--send-unannounced))
        (cond ((or buffer-read-only (midfill--repeated-p)))
              (edited (when (midfill--automatic-p) (midfill--ask 2)))
              (midfill--open
               (midfill--notify :midfill/didMoveCursor
                                :textDocument (midfill--document) :position (midfill--position (point)))))))))

(defun midfill-suggest ()
  "Ask for a suggestion now."
  (interactive)
  (if midfill--open (midfill--ask 1) (midfill-explain)))

(defun midfill-accept ()
  "Insert the suggestion."
  (interactive)
  (when-let ((rest (midfill--rest)))
    (let ((command (plist-get midfill--item :command)) (end (marker-position midfill--end)))
      (midfill--clear)
      (delete-region (point) end)
      (insert rest)
      (when command
        (midfill--request :workspace/executeCommand
                          (list :command (plist-get command :command) :arguments (plist-get command :arguments)))))))

(defun midfill-accept-word ()
  "Insert the suggestion's next word."
  (interactive)
  (when-let ((rest (midfill--rest)))
    (let ((item midfill--item)
          (piece (substring rest 0 (and (string-match "\\`[ \t\n]*\\(?:\\w+\\|[^[:space:]]\\)" rest) (match-end 0)))))
      (if (string= piece rest)
          (midfill-accept) ; which also removes the text that the suggestion replaces
        (insert piece)
        (midfill--notify :textDocument/didPartiallyAcceptCompletion :item item :acceptedLength
                         (/ (length (encode-coding-string (midfill--text midfill--start (point)) 'utf-16le)) 2))))))

(defun midfill-dismiss ()
  "Remove the suggestion."
  (interactive)
  (midfill--clear))

(defun midfill--leave ()
  "Remove the suggestion, and close the document; another major mode drops the buffer's local variables."
  (midfill--clear)
  (midfill--close))

(defun midfill--rename ()
  "Open the document under its new name, by which the server decides whether its text may be used."
  (midfill--leave)
  (midfill--open))

(defun midfill--cloned ()
  "Turn the mode off in an indirect buffer, which has the variables of its base."
  (setq midfill--open nil)
  (midfill-mode -1))

;;;###autoload
(define-minor-mode midfill-mode
  "Show code completions of midfill as grey text at the cursor."
  :lighter (:eval (midfill-reason--lighter))
  (if midfill-mode
      (progn
        (add-hook 'before-change-functions #'midfill--before-change nil t)
        (add-hook 'after-change-functions #'midfill--after-change nil t)
        (add-hook 'post-command-hook #'midfill--after-command nil t)
        (add-hook 'kill-buffer-hook #'midfill--close nil t)
        (add-hook 'change-major-mode-hook #'midfill--leave nil t)
        (add-hook 'after-set-visited-file-name-hook #'midfill--rename nil t)
        (add-hook 'clone-indirect-buffer-hook #'midfill--cloned nil t)
        (setq midfill--seen (midfill--here))
        (if (midfill--connect) (midfill--open) (midfill-mode -1)))
    (remove-hook 'before-change-functions #'midfill--before-change t)
    (remove-hook 'after-change-functions #'midfill--after-change t)
    (remove-hook 'post-command-hook #'midfill--after-command t)
    (remove-hook 'kill-buffer-hook #'midfill--close t)
    (remove-hook 'change-major-mode-hook #'midfill--leave t)
    (remove-hook 'after-set-visited-file-name-hook #'midfill--rename t)
    (remove-hook 'clone-indirect-buffer-hook #'midfill--cloned t)
    (midfill--leave)))

(declare-function evil-set-command-property "evil-common")
(with-eval-after-load 'evil ; whose dot repeats keys, where it is not told otherwise
  (dolist (command '(midfill-accept midfill-accept-word)) (evil-set-command-property command :repeat 'change)))

(provide 'midfill)
(require 'midfill-reason) ; both extend the mode
(require 'midfill-next-edit)
;;; midfill.el ends here
